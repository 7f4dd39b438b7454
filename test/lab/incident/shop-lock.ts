import { RedisStore, SubmitLock } from "../../../src/index.ts";
import type { AnyRedis } from "../../support/clients.ts";
import { ttlMs } from "../faults/library.ts";
import { oldLocks, submitTo } from "./old-locks.ts";

/** What one submit came to: `repeated` is the answer of the order that was placed before. */
export type Submitted =
  | "repeated"
  | "refused"
  | {
      /** Aborts when the lock says that it is lost; then the order stops. */
      readonly signal?: AbortSignal;
      /** The order is placed. */
      finish(): Promise<unknown>;
    };

/** One server's lock. */
export interface ShopLock {
  submit(user: string, wish: string): Promise<Submitted>;
  close(): Promise<unknown>;
}

const redlock = "redlock 5, as its README has it";
const alone = "submit-lock";
const once = "submit-lock with an id for each wish";

/** The rows of the table, in its order. */
export const shopLocks: readonly string[] = [...Object.keys(oldLocks), redlock, alone, once];

/** @throws Error for a name that is none of {@link shopLocks}. */
export async function openShopLock(name: string, client: AnyRedis): Promise<ShopLock> {
  const attempt = oldLocks[name];
  if (attempt !== undefined) {
    return { submit: (user) => submitTo(attempt, client, user), close: async () => {} };
  }
  if (name === redlock) return openRedlock(client);
  if (name === alone) return openSubmitLock(client);
  if (name === once) return openOnce(client);
  throw new Error(`There is no lock "${name}".`);
}

/** Its package is installed by `npm run lab -- incident` alone. */
async function openRedlock(client: AnyRedis): Promise<ShopLock> {
  const { redlock: libraries } = await import("../peers/faults/redlock.ts");
  const contender = libraries.find(({ name }) => name === "redlock, defaults")?.open(client);
  if (contender === undefined) throw new Error("The laboratory of the neighbours has no redlock.");
  return {
    async submit(user) {
      const answer = await contender.acquire(user);
      if (answer.outcome !== "acquired") return "refused";
      return { finish: () => answer.hold.release() };
    },
    close: () => contender.close(),
  };
}

function openSubmitLock(client: AnyRedis): ShopLock {
  const lock = new SubmitLock({ store: new RedisStore(client), ttlMs });
  return {
    async submit(user) {
      const attempt = await lock.acquire(user);
      if (attempt.outcome !== "acquired") return "refused";
      const { lease } = attempt;
      return { signal: lease.signal, finish: () => lease.release() };
    },
    close: () => lock.close({ timeoutMs: 0 }),
  };
}

/** An id such as that of a cart and its version. */
function openOnce(client: AnyRedis): ShopLock {
  const lock = new SubmitLock({ store: new RedisStore(client), ttlMs });
  return {
    async submit(user, wish) {
      const attempt = await lock.acquire(user, { submission: { id: wish } });
      if (attempt.outcome === "completed") return "repeated";
      if (attempt.outcome !== "acquired") return "refused";
      const { lease } = attempt;
      const finish = () => lease.complete({ status: 201, body: wish });
      return { signal: lease.signal, finish };
    },
    close: () => lock.close({ timeoutMs: 0 }),
  };
}
