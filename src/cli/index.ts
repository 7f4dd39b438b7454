#!/usr/bin/env node
import { once } from "node:events";
import { createInterface } from "node:readline/promises";
import { styleText } from "node:util";
import { exitCode } from "./failure.ts";
import { main } from "./main.ts";
import { plain, type Terminal } from "./terminal.ts";

const { env, stdin, stdout, stderr } = process;

// Colours only on a terminal, and never with NO_COLOR (https://no-color.org).
const isMono = stdout.isTTY !== true || (env["NO_COLOR"] ?? "") !== "" || env["TERM"] === "dumb";

const terminal: Terminal = {
  env,
  canAsk: stdin.isTTY === true && stderr.isTTY === true,
  paint: isMono ? plain : (tone, text) => styleText(tone, text, { validateStream: false }),
  print: (lines) => void stdout.write(lines.map((line) => `${line}\n`).join("")),
  warn: (lines) => void stderr.write(lines.map((line) => `${line}\n`).join("")),
  progress: (text) => {
    if (stderr.isTTY && env["TERM"] !== "dumb") stderr.write(`\r\u001b[K${text}`);
  },
  ask: async (question) => {
    const reader = createInterface({ input: stdin, output: stderr });
    try {
      const ended = once(reader, "close").then(() => undefined);
      // Ctrl-C rejects the question: nothing was typed.
      const asked = reader.question(question).catch(() => undefined);
      return (await Promise.race([asked, ended]))?.trim();
    } finally {
      reader.close();
    }
  },
};

stdout.on("error", ({ code, message }: NodeJS.ErrnoException) => {
  // `submit-lock list | head` closes the pipe early, which is not a failure.
  if (code === "EPIPE") process.exit();
  stderr.write(`submit-lock: cannot write the output (${message})\n`);
  process.exit(exitCode.usage);
});

// Without an audit line, no success: a command that deletes stops here.
stderr.on("error", ({ message }: NodeJS.ErrnoException) => {
  stdout.write(`submit-lock: cannot write to stderr (${message})\n`);
  process.exit(exitCode.usage);
});

void main(process.argv.slice(2), terminal).then((code) => {
  // These writes call back after all output. Exit then: an open connection keeps the process alive.
  // The listeners above print an error, and end the process.
  stdout.write("", (error) => {
    if (!error) stderr.write("", (error) => !error && process.exit(code));
  });
});
