import type { Cluster, Redis } from "ioredis";

export type Client = Redis | Cluster;

/** The life of every lock of the bench. */
export const ttlMs = 10_000;

/**
 * A lock library as the bench calls it: one try, and a release by its owner only. The hold is
 * whatever the library hands out, so that the bench makes no closure of its own for each pair.
 */
export interface Locker<Hold> {
  acquire(user: string): Promise<Hold>;
  release(hold: Hold): Promise<unknown>;
}

/** What `acquire` throws when the lock was not taken: no two callers of the bench want the same. */
export function notTaken(user: string): Error {
  return new Error(`the lock of ${user} was not taken`);
}
