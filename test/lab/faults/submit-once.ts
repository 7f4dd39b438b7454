import { type Lease, RedisStore, SubmitLock } from "../../../src/index.ts";
import { recordKey } from "../../support/submissions.ts";
import { type Library, type Retry, ttlMs } from "./library.ts";

const id = "cart 7";
const body = "order 7";
const status = 201;

const keyOf = (user: string): string => `lock:submit:${user}`;

/** This package with the answer of a submission: the caller completes, rivals have other orders. */
export function submitOnce(retainMs: number): Library {
  const submission = { id, retainMs };
  return {
    name: "submit-lock, once",
    extends: true,
    keyOf,
    recordKeyOf: (user, keyPrefix) => keyPrefix + recordKey(keyPrefix + keyOf(user), id),
    open(client) {
      const lock = new SubmitLock({ store: new RedisStore(client), ttlMs });
      return {
        async acquire(user) {
          const attempt = await lock.acquire(user, { submission });
          if (attempt.outcome === "acquired") {
            const release = () => attempt.lease.complete({ status, body });
            return { outcome: "acquired", hold: holdOf(attempt.lease, release) };
          }
          if (attempt.outcome !== "unavailable") return { outcome: "contended" };
          return { outcome: "unavailable", cause: attempt.cause.message };
        },
        close: () => lock.close({ timeoutMs: 0 }),
      };
    },
    openRival(client) {
      const lock = new SubmitLock({ store: new RedisStore(client), ttlMs });
      return {
        async acquire(user) {
          const attempt = await lock.acquire(user);
          if (attempt.outcome !== "acquired") return { outcome: attempt.outcome };
          const release = () => attempt.lease.release();
          return { outcome: "acquired", hold: holdOf(attempt.lease, release) };
        },
        async retry(user): Promise<Retry> {
          const attempt = await lock.acquire(user, { submission });
          if (attempt.outcome === "acquired") {
            await attempt.lease.release();
            return "ran";
          }
          if (attempt.outcome !== "completed") return "refused";
          const { answer } = attempt;
          const isIt =
            answer.status === status && Buffer.from(answer.body ?? "").equals(Buffer.from(body));
          return isIt ? "replayed" : "another answer";
        },
        close: () => lock.close({ timeoutMs: 0 }),
      };
    },
  };
}

function holdOf({ ownerId, signal }: Lease, release: () => Promise<string>) {
  return { ownerId, signal, release };
}
