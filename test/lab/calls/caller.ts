import { existsSync, readFileSync } from "node:fs";
import { Child } from "../../support/child.ts";
import { now } from "../service/protocol.ts";
import type { Call, CallerSettings, FromCaller, Note } from "./caller-process.ts";

/** A process that calls `once`, seen from outside. */
export interface Caller {
  /** When it was killed; `undefined` while it lives. */
  readonly killedAt: number | undefined;
  make(call: Call): void;
  /** Every line of its log. */
  notes(): Note[];
  kill(): Promise<void>;
}

/** Resolves when it takes calls. */
export async function startCaller(
  settings: CallerSettings,
  onReply: (reply: Exclude<FromCaller, { ready: true }>) => void,
): Promise<Caller> {
  const script = new URL("./caller-process.ts", import.meta.url);
  const child = new Child<FromCaller, Call>(script, [JSON.stringify(settings)]);
  let killedAt: number | undefined;
  child.onMessage((message) => {
    // What it has said before its death and is heard later: its parent asks another one by then.
    if (!("ready" in message) && killedAt === undefined) onReply(message);
  });
  await child.next();
  return {
    get killedAt() {
      return killedAt;
    },
    make: (call) => child.send(call),
    notes: () => {
      if (!existsSync(settings.log)) return [];
      const lines = readFileSync(settings.log, "utf8").split("\n");
      return lines.filter((line) => line !== "").map((line) => JSON.parse(line));
    },
    async kill() {
      const killed = child.kill();
      killedAt = now();
      await killed;
    },
  };
}
