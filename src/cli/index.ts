#!/usr/bin/env node
import { main } from "./main.ts";
import { processTerminal } from "./terminal.ts";

// `submit-lock list | head` is no failure of ours.
process.stdout.on("error", () => process.exit());

void main(process.argv.slice(2), processTerminal()).then((code) => {
  // What was written has left the process by then; the connection would keep it alive.
  process.stdout.write("", () => process.exit(code));
});
