import type { LockRequest, LockStore, NoAnswer } from "./store.ts";

/** The same store, in which a method that throws has answered `unknown`. */
export function neverThrowing(store: LockStore): LockStore {
  return {
    acquire: answering((request) => store.acquire(request)),
    extend: answering((request) => store.extend(request)),
    release: answering((request) => store.release(request)),
    attach: (onReady) => store.attach(onReady),
  };
}

function answering<Reply>(
  write: (request: LockRequest<Reply | NoAnswer>) => void,
): (request: LockRequest<Reply | NoAnswer>) => void {
  return (request) => {
    try {
      write(request);
    } catch (error) {
      const cause = error instanceof Error ? error : new Error(String(error));
      request.answer({ kind: "unknown", cause });
    }
  };
}
