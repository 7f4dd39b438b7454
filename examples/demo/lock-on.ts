import { type LockStore, SubmitLock } from "submit-lock";

/** The lock of the demo, the same one in each of its processes. */
export function lockOn(store: LockStore): SubmitLock {
  return new SubmitLock({
    store,
    // The REDIS_URL of a shell may be that of a shop in production.
    keyPrefix: "demo:lock:submit:",
    // Half the default, so that whoever kills a server on the page need not wait long.
    ttlMs: 5_000,
  });
}
