import { subscribe } from "node:diagnostics_channel";
import { setTimeout as sleep } from "node:timers/promises";
import { Redis } from "ioredis";
import { Redis as Redis5 } from "ioredis5";
import { RedisStore, SubmitLock } from "../../../src/index.ts";
import type { ClientName } from "../laboratory.ts";
import { connect } from "../shop/connect.ts";
import { now } from "../shop/protocol.ts";

/** How an old server releases: as ever, without a second copy, or by a comparison with its value. */
export type Release = "DEL" | "DEL, never sent again" | "compare-and-delete of 1";

export interface Settings {
  readonly port: number;
  readonly redisClient: ClientName;
  /** The expiry of every old lock. */
  readonly lifeMs: number;
  /** `undefined`: a new server, with submit-lock. */
  readonly release: Release | undefined;
  /** Whether a new server has the old code's keys, or only its prefix. */
  readonly hasKeyOf: boolean;
}

export type ToServer = { readonly click: number; readonly user: string; readonly workMs: number };

export type FromServer =
  | { readonly isReady: true }
  | { readonly begun: number; readonly user: string; readonly at: number }
  /** The work is over, or the server was told to stop it. Said before the release. */
  | { readonly ended: number; readonly at: number }
  | { readonly answered: number }
  /** A release that found the lock gone, or another's in its place: somebody has deleted it. */
  | { readonly alarm: string };

const { port, redisClient, lifeMs, release, hasKeyOf } = JSON.parse(
  process.argv[2] ?? "",
) as Settings;
const tell = (message: FromServer) => void process.send?.(message);
process.once("disconnect", () => process.exit());

const keyOf = (user: string) => `lock:${user}`;

/** The shop of the README, two hours and all. Its time-out leaves a lock that nobody owns. */
function oldShop(how: Release) {
  const options = {
    ...{ port, host: "127.0.0.1", commandTimeout: 200 },
    ...(how === "DEL, never sent again" && { autoResendUnfulfilledCommands: false }),
  };
  const redis = redisClient === "ioredis 5" ? new Redis5(options) : new Redis(options);
  redis.on("error", () => {});
  const compare = "return redis.call('GET', KEYS[1]) == ARGV[1] and redis.call('DEL', KEYS[1])";
  const order = async ({ click, user, workMs }: ToServer): Promise<void> => {
    const key = keyOf(user);
    const taken = await redis.set(key, "1", "PX", lifeMs, "NX").catch(() => "failed");
    if (taken !== "OK") return;
    tell({ begun: click, user, at: now() });
    await sleep(workMs);
    tell({ ended: click, at: now() });
    const freeing =
      how === "compare-and-delete of 1" ? redis.eval(compare, 1, key, "1") : redis.del(key);
    await freeing.catch(() => {});
  };
  return { order, check: () => redis.ping(), end: () => redis.quit() };
}

function newShop() {
  const { redis, end: disconnect } = connect({ kind: "single", port }, redisClient);
  const keys = { keyPrefix: "lock:", ...(hasKeyOf && { keyOf }) };
  const lock = new SubmitLock({ store: new RedisStore(redis), ttlMs: 4_000, ...keys });
  subscribe("submit-lock:release", (message) => {
    const { outcome } = message as { outcome: string };
    if (outcome === "gone" || outcome === "foreign") tell({ alarm: outcome });
  });
  const order = async ({ click, user, workMs }: ToServer): Promise<void> => {
    const attempt = await lock.acquire(user);
    if (attempt.outcome !== "acquired") return;
    const { lease } = attempt;
    tell({ begun: click, user, at: now() });
    await sleep(workMs, undefined, { signal: lease.signal }).catch(() => {});
    tell({ ended: click, at: now() });
    void lease.release();
  };
  const end = async () => {
    await lock.close();
    disconnect();
  };
  return { order, check: () => lock.check(), end };
}

const shop = release === undefined ? newShop() : oldShop(release);
const underWay = new Set<Promise<void>>();
process.on("message", (click: ToServer) => {
  const answered = shop.order(click).then(() => tell({ answered: click.click }));
  underWay.add(answered);
  void answered.then(() => underWay.delete(answered));
});
process.once("SIGTERM", async () => {
  await Promise.all(underWay);
  await shop.end();
  process.exit();
});
// A busy machine may be late.
const checked = () => shop.check().then(() => true);
while (!(await checked().catch(() => false))) await sleep(10);
tell({ isReady: true });
