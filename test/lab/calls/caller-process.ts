import { randomUUID } from "node:crypto";
import { openSync, writeSync } from "node:fs";
import { setTimeout as sleep } from "node:timers/promises";
import {
  isSubmitLockError,
  LockContendedError,
  RedisStore,
  SubmitLock,
} from "../../../src/index.ts";
import { labClients } from "../client-name.ts";
import { connect } from "../service/connect.ts";
import { now } from "../service/protocol.ts";
import type { Call, CallerSettings, FromCaller, Note } from "./protocol.ts";

/** A process that calls `once` as its parent says, until it is killed: `caller-process.ts SETTINGS`. */
const { log, port, times } = JSON.parse(process.argv[2] ?? "{}") as CallerSettings;
const file = openSync(log, "a");
const tell = (message: FromCaller) => process.send?.(message);
/** Written before it goes on, so that a kill loses no line. */
const note = (line: Note) => writeSync(file, `${JSON.stringify(line)}\n`);
// Nobody is there any more who would end it.
process.once("disconnect", () => process.exit());

const { redis } = connect({ kind: "single", port }, labClients()[0]);
const lock = new SubmitLock({ store: new RedisStore(redis), ...times });
await lock.check({ submissions: true });

process.on("message", async ({ call, gapMs, submission, user, waitMs, workMs }: Call) => {
  try {
    const { replayed, value } = await lock.once(
      user,
      { id: submission },
      async ({ signal }) => {
        const run = randomUUID();
        const about = { run, user, submission };
        signal.addEventListener("abort", () => note({ what: "lost", ...about, at: now() }));
        note({ what: "begun", ...about, at: now() });
        await sleep(workMs);
        note({ what: "ended", ...about, at: now() });
        await sleep(gapMs);
        return { run };
      },
      { waitMs },
    );
    tell({ call, run: value.run, replayed });
  } catch (error) {
    tell({ call, error: nameOf(error) });
  }
});
tell({ ready: true });

function nameOf(error: unknown): string {
  if (!isSubmitLockError(error)) return String(error);
  if (!(error instanceof LockContendedError)) return `${error.code} ${error.message}`;
  if (error.hasEnded) return "has ended";
  return error.sameSubmission ? "in flight" : "contended";
}
