import Redlock, { ExecutionError, type Lock, ResourceLockedError } from "redlock";
import type { AnyRedis } from "../../../support/clients.ts";
import { type Contender, type Hold, type Library, ttlMs } from "../../faults/library.ts";

function contender(client: AnyRedis, settings: { retryCount?: number }): Contender {
  const redlock = new Redlock([client], settings);
  // Without a listener an error of a background try ends the process.
  redlock.on("error", () => {});
  return {
    async acquire(user) {
      try {
        return { outcome: "acquired", hold: holdOf(await redlock.acquire([keyOf(user)], ttlMs)) };
      } catch (error) {
        return { outcome: (await isContended(error)) ? "contended" : "error" };
      }
    },
    close: async () => {},
  };
}

const keyOf = (user: string): string => `lock:${user}`;

function holdOf(first: Lock): Hold {
  let lock = first;
  return {
    ownerId: lock.value,
    async extend() {
      lock = await lock.extend(ttlMs);
    },
    async release() {
      await lock.release();
      return "released";
    },
  };
}

/** One error covers both an outage and a rival; the votes of its last attempt tell which. */
async function isContended(error: unknown): Promise<boolean> {
  if (!(error instanceof ExecutionError)) return false;
  const votes = [...((await error.attempts.at(-1))?.votesAgainst.values() ?? [])];
  return votes.length > 0 && votes.every((vote) => vote instanceof ResourceLockedError);
}

const openRival = (client: AnyRedis): Contender => contender(client, { retryCount: 0 });

export const redlock: Library[] = [
  { name: "redlock, one try", extends: true, keyOf, open: openRival },
  {
    name: "redlock, defaults",
    extends: true,
    keyOf,
    open: (client) => contender(client, {}),
    openRival,
  },
];
