import type { LockRequest, LockStore, NoAnswer } from "./store.ts";

/** The same store, where one that throws counts as one that does not know what became of the copy. */
export function neverThrowing(store: LockStore): LockStore {
  return {
    acquire: answering((copy) => store.acquire(copy)),
    extend: answering((copy) => store.extend(copy)),
    release: answering((copy) => store.release(copy)),
    attach: (onReady) => store.attach(onReady),
  };
}

function answering<Reply>(
  write: (copy: LockRequest<Reply | NoAnswer>) => void,
): (copy: LockRequest<Reply | NoAnswer>) => void {
  return (copy) => {
    try {
      write(copy);
    } catch (error) {
      const cause = error instanceof Error ? error : new Error(String(error));
      copy.answer({ kind: "unknown", cause });
    }
  };
}
