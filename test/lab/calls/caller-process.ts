import { randomUUID } from "node:crypto";
import { openSync, writeSync } from "node:fs";
import { setTimeout as sleep } from "node:timers/promises";
import {
  isSubmitLockError,
  LockContendedError,
  RedisStore,
  SubmitLock,
  type SubmitLockOptions,
} from "../../../src/index.ts";
import { labClients } from "../client-name.ts";
import { connect } from "../service/connect.ts";
import { now } from "../service/protocol.ts";

/** What a process is told when it starts. */
export interface CallerSettings {
  readonly port: number;
  /** Where it notes its runs, in lines that outlive it. */
  readonly log: string;
  readonly times: Partial<Omit<SubmitLockOptions, "store">>;
}

/** A call of `once` that a process must make. */
export interface Call {
  readonly call: number;
  readonly user: string;
  readonly submission: string;
  /** How long the work takes if this call runs it, and how long it then takes to return. */
  readonly workMs: number;
  readonly gapMs: number;
  readonly waitMs: number;
}

/** What a process says of itself and of its calls. */
export type FromCaller =
  | { readonly ready: true }
  | { readonly call: number; readonly run: string; readonly replayed: boolean }
  | { readonly call: number; readonly error: string };

/** A line of a log: a run has begun, it has had its effect, or its lease was lost. */
export interface Note {
  readonly what: "begun" | "ended" | "lost";
  readonly run: string;
  readonly user: string;
  readonly submission: string;
  /** By the clock that all processes share. */
  readonly at: number;
}

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
