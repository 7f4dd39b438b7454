import { setTimeout as sleep } from "node:timers/promises";
import { startServer } from "../server-process.ts";

/** A laboratory that starts a server, tells its process, and is at work for longer than it is let. */
const { pid } = await startServer(process.argv[2] ?? "");
console.log(`<${pid}>`);
await sleep(600_000);
