import { type ChildProcess, fork } from "node:child_process";
import { once } from "node:events";
import { existsSync, readFileSync } from "node:fs";
import { fileURLToPath } from "node:url";
import { atExit } from "../../support/at-exit.ts";
import { now } from "../service/protocol.ts";
import type { Call, CallerSettings, FromCaller, Note } from "./protocol.ts";

/** A process that calls `once`, seen from outside. */
export interface Caller {
  /** When it was killed; `undefined` while it lives. */
  readonly killedAt: number | undefined;
  make(call: Call): void;
  /** Every line of its log. */
  notes(): Note[];
  kill(): Promise<void>;
}

const running = new Set<ChildProcess>();
atExit(() => {
  for (const child of running) child.kill("SIGKILL");
});

/** Resolves when it takes calls. */
export async function startCaller(
  settings: CallerSettings,
  onReply: (reply: Exclude<FromCaller, { ready: true }>) => void,
): Promise<Caller> {
  const script = fileURLToPath(new URL("./caller-process.ts", import.meta.url));
  const child = fork(script, [JSON.stringify(settings)], {
    execArgv: ["--import", "tsx"],
    stdio: ["ignore", "ignore", "inherit", "ipc"],
  });
  running.add(child);
  const exited = once(child, "exit").then(() => running.delete(child));
  let killedAt: number | undefined;
  await new Promise<void>((resolve, reject) => {
    child.once("exit", (code) => reject(new Error(`a caller ended at once, with ${code}`)));
    child.on("message", (message: FromCaller) => {
      if ("ready" in message) resolve();
      // What it has said before its death and is heard later: its parent asks another one by then.
      else if (killedAt === undefined) onReply(message);
    });
  });
  return {
    get killedAt() {
      return killedAt;
    },
    make: (call) => void child.send(call),
    notes: () => {
      if (!existsSync(settings.log)) return [];
      const lines = readFileSync(settings.log, "utf8").split("\n");
      return lines.filter((line) => line !== "").map((line) => JSON.parse(line));
    },
    async kill() {
      child.kill("SIGKILL");
      killedAt = now();
      await exited;
    },
  };
}
