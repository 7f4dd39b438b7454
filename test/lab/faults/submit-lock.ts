import { RedisStore, SubmitLock } from "../../../src/index.ts";
import { type Library, ttlMs } from "./library.ts";

/** This package, with its default time bounds: 1 s for an attempt, 200 ms for a command. */
export const submitLock: Library = {
  name: "submit-lock",
  extends: true,
  keyOf: (user) => `lock:submit:${user}`,
  open(client) {
    const lock = new SubmitLock({ store: new RedisStore(client), ttlMs });
    return {
      async acquire(user) {
        const attempt = await lock.acquire(user);
        if (attempt.outcome === "contended") return { outcome: "contended" };
        if (attempt.outcome === "unavailable") {
          return { outcome: "unavailable", cause: attempt.cause.message };
        }
        const { lease } = attempt;
        const { ownerId, signal } = lease;
        return { outcome: "acquired", hold: { ownerId, signal, release: () => lease.release() } };
      },
      close: () => lock.close({ timeoutMs: 0 }),
    };
  },
};
