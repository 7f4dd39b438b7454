import { setTimeout as sleep } from "node:timers/promises";
import type { Inspection } from "../lock/on-call.ts";
import { answerOf, theLock } from "./connect.ts";
import type { Context } from "./context.ts";
import { parseDuration } from "./durations.ts";
import { exitCode } from "./failure.ts";
import { json, visibleInspection } from "./visible.ts";
import { changeOf, watchLine } from "./watch-text.ts";

const everyMs = 200;

/** `submit-lock watch <user>` */
export async function watch({ args, terminal, open }: Context): Promise<number> {
  const bound = args.text("for");
  const endsAt =
    performance.now() +
    (bound === undefined ? Number.POSITIVE_INFINITY : parseDuration("for", bound));
  const connection = await open();
  const lock = theLock(connection);
  let before: Inspection | undefined;
  for (;;) {
    const found = await answerOf(connection, lock.inspect(args.user));
    const change = changeOf(before, found);
    if (change !== undefined) {
      const at = new Date();
      terminal.print([
        args.has("json")
          ? json({ time: at.toISOString(), userId: args.user, change, ...found })
          : watchLine(at, change, before, visibleInspection(found)),
      ]);
    }
    before = found;
    if (performance.now() + everyMs > endsAt) return exitCode.done;
    await sleep(everyMs);
  }
}
