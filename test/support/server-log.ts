import { randomUUID } from "node:crypto";
import type { Redis } from "ioredis";
import { ioredis6, untilReady } from "./clients.ts";
import { command } from "./command.ts";
import { until } from "./until.ts";

/** The script calls of clients that a server executes, from the beginning of the log on. */
export interface ServerLog {
  /** Those since the last look, each with its arguments; all that was answered before is among them. */
  calls(): Promise<ExecutedCall[]>;
  stop(): void;
}

export interface ExecutedCall {
  readonly byText: boolean;
  readonly keys: readonly string[];
  readonly args: readonly string[];
}

/**
 * A connection in MONITOR. Begin it when the other clients are ready: ioredis fails where a command
 * of another connection, such as INFO, is right behind the answer to MONITOR.
 */
export async function startMonitor(port: number): Promise<Redis> {
  const client = await untilReady(ioredis6.connect(port));
  const monitor = await client.monitor();
  client.disconnect();
  return monitor;
}

/** Begins a log by MONITOR. */
export async function serverLog(port: number): Promise<ServerLog> {
  const monitor = await startMonitor(port);
  let heard: string[][] = [];
  monitor.on("monitor", (_time: string, argv: string[], source: string) => {
    if (source !== "lua") heard.push(argv);
  });
  return {
    async calls() {
      const mark = randomUUID();
      await command(port, "ECHO", mark);
      const isMark = ([, argument]: string[]) => argument === mark;
      const end = await until(() => heard.findIndex(isMark) + 1, { what: "the log's mark" });
      const calls = heard.slice(0, end).flatMap(callOf);
      heard = heard.slice(end);
      return calls;
    },
    stop: () => monitor.disconnect(),
  };
}

function callOf([name = "", , count, ...rest]: string[]): ExecutedCall[] {
  const isCall = /^(eval|evalsha)$/i.test(name);
  const declared = Number(count);
  const [keys, args] = [rest.slice(0, declared), rest.slice(declared)];
  return isCall ? [{ byText: name.toLowerCase() === "eval", keys, args }] : [];
}
