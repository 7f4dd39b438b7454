import {
  type LostReason,
  RedisStore,
  SubmitLock,
  type SubmitLockOptions,
} from "../../../src/index.ts";
import { labClients } from "../client-name.ts";
import { connect } from "../service/connect.ts";
import { now } from "../service/protocol.ts";

export interface HolderSettings {
  readonly port: number;
  readonly users: readonly string[];
  readonly times: Partial<Omit<SubmitLockOptions, "store">>;
}

/** What a holder tells its parent. Times are those of the clock that all processes share. */
export type FromHolder =
  | { readonly begun: string; readonly user: string; readonly at: number }
  | { readonly told: string; readonly reason: LostReason; readonly at: number }
  /** Until when each lease is valid, as far as the holder knows at the moment. */
  | { readonly believed: readonly (readonly [ownerId: string, until: number])[] };

/**
 * A process that holds the locks of some users and never gives them back: `holder-process.ts SETTINGS`.
 * It tells its parent what it believes.
 */
const { port, times, users } = JSON.parse(process.argv[2] ?? "{}") as HolderSettings;
const tell = (message: FromHolder) => process.send?.(message);
// Nobody is there any more who would end it.
process.once("disconnect", () => process.exit());

const { redis } = connect({ kind: "single", port }, labClients()[0]);
const lock = new SubmitLock({ store: new RedisStore(redis), ...times });
await lock.check();

const leases = await Promise.all(
  users.map(async (user) => {
    const attempt = await lock.acquire(user);
    if (attempt.outcome !== "acquired") throw new Error(`${user}: ${attempt.outcome}`);
    const { lease } = attempt;
    const { ownerId, signal } = lease;
    // Heard in the moment in which it is told, as in a handler that hands the signal on.
    signal.addEventListener("abort", () => {
      tell({ told: ownerId, reason: signal.reason.reason, at: now() });
    });
    tell({ begun: ownerId, user, at: now() });
    return lease;
  }),
);

// So often that what is heard last, before this process is stopped, is what it went on to believe.
setInterval(() => {
  const believed = leases.filter(({ signal }) => !signal.aborted);
  const until = believed.map((lease) => [lease.ownerId, now() + lease.remainingMs()] as const);
  tell({ believed: until });
}, 10);
