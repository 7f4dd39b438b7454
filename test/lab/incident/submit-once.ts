import { RedisStore, SubmitLock } from "../../../src/index.ts";
import type { AnyRedis } from "../../support/clients.ts";
import { ttlMs } from "../faults/library.ts";

/** What one submit came to: `repeated` is the answer of the order that was placed before. */
export type Submitted = "repeated" | "refused" | { release(): Promise<unknown> };

/** This package with an id for each wish, such as that of a cart and its version. */
export function openOnce(client: AnyRedis) {
  const lock = new SubmitLock({ store: new RedisStore(client), ttlMs });
  return {
    async submit(user: string, wish: string): Promise<Submitted> {
      const attempt = await lock.acquire(user, { submission: { id: wish } });
      if (attempt.outcome === "completed") return "repeated";
      if (attempt.outcome !== "acquired") return "refused";
      return { release: () => attempt.lease.complete({ status: 201, body: wish }) };
    },
    close: () => lock.close({ timeoutMs: 0 }),
  };
}
