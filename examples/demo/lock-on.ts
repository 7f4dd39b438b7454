import { type LockStore, SubmitLock } from "submit-lock";

/**
 * The lock of the demo, the same one in each of its processes.
 *
 * @param holder who has a lock, on the page; host name and process id would do in a shop.
 */
export function lockOn(store: LockStore, holder: string): SubmitLock {
  return new SubmitLock({
    store,
    holder,
    // The REDIS_URL of a shell may be that of a shop in production.
    keyPrefix: "demo:lock:submit:",
    // Half the default, so that whoever kills a server on the page need not wait long.
    ttlMs: 5_000,
  });
}
