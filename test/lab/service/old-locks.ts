import { randomUUID } from "node:crypto";
import type { AnyRedis } from "../../support/clients.ts";
import { ttlMs } from "../faults/libraries.ts";

/** One try at the lock of a user: how to let go of it, or `undefined` where somebody else holds it. */
type Try = (redis: AnyRedis, key: string) => Promise<(() => Promise<unknown>) | undefined>;

/** The same for a user, on the client of one server. */
type OldLock = (user: string) => ReturnType<Try>;

/** The two hours of the story, scaled: one second stands for four minutes. */
const twoHoursMs = 30_000;

/** Key and expiry in one command, `DEL` at the end; nobody's name is in it. */
const withLife =
  (lifeMs: number): Try =>
  async (redis, key) => {
    const reply = await redis.set(key, "1", "PX", lifeMs, "NX");
    return reply === "OK" ? () => redis.del(key) : undefined;
  };

/** The first recipe of most articles: two commands, and a process may die between them. */
const inTwoCommands: Try = async (redis, key) => {
  if ((await redis.setnx(key, "1")) !== 1) return undefined;
  await redis.pexpire(key, ttlMs);
  return () => redis.del(key);
};

/**
 * The recipe that Redis' own page of SETNX gave before `SET` could do it: the value is the time at
 * which the lock expires by its holder's clock; who finds it over takes it by `GETSET`, and has it
 * where `GETSET` gives back a time that is over.
 */
const byTimestamp: Try = async (redis, key) => {
  const expiresAt = Date.now() + ttlMs + 1;
  const release = async () => {
    // As the page says: only while it has not expired, because it may be another's by now.
    if (Date.now() < expiresAt) await redis.del(key);
  };
  if ((await redis.setnx(key, `${expiresAt}`)) === 1) return release;
  const found = await redis.get(key);
  if (found !== null && Number(found) > Date.now()) return undefined;
  const before = await redis.getset(key, `${expiresAt}`);
  return before === null || Number(before) < Date.now() ? release : undefined;
};

/** Compare and delete. */
const deleteIfMine = `if redis.call("GET", KEYS[1]) == ARGV[1] then return redis.call("DEL", KEYS[1]) end return 0`;

const withOwner: Try = async (redis, key) => {
  const ownerId = randomUUID();
  const reply = await redis.set(key, ownerId, "PX", ttlMs, "NX");
  return reply === "OK" ? () => redis.eval(deleteIfMine, 1, key, ownerId) : undefined;
};

/** Each as its articles have it, named by what it does. */
export const oldLocks: Readonly<Record<string, Try>> = {
  "SETNX for two hours (30 s here)": withLife(twoHoursMs),
  "SETNX, then EXPIRE": inTwoCommands,
  "SETNX of a timestamp, GETSET to take over": byTimestamp,
  "SET NX PX, DEL": withLife(ttlMs),
  "SET NX PX, compare and delete": withOwner,
};

/** The lock of that name on a client. @throws Error for an unknown name. */
export function openOldLock(name: string, client: AnyRedis): OldLock {
  const attempt = oldLocks[name];
  if (attempt === undefined) throw new Error(`There is no old lock "${name}".`);
  return (user) => attempt(client, `lock:${user}`);
}
