import type { LockRequest, LockStore, NoAnswer } from "./store.ts";

/** The same store, in which a method that throws has answered `unknown`. */
export function neverThrowing(store: LockStore): LockStore {
  const { complete, inspect, free } = store;
  return {
    acquire: answering((request) => store.acquire(request)),
    extend: answering((request) => store.extend(request)),
    release: answering((request) => store.release(request)),
    ...(complete && { complete: answering((request) => complete.call(store, request)) }),
    ...(inspect && { inspect: answering((request) => inspect.call(store, request)) }),
    ...(free && { free: answering((request) => free.call(store, request)) }),
    recordsProblem: store.recordsProblem,
    attach: (onReady) => store.attach(onReady),
  };
}

function answering<Reply, Request extends LockRequest<Reply | NoAnswer>>(
  write: (request: Request) => void,
): (request: Request) => void {
  return (request) => {
    try {
      write(request);
    } catch (error) {
      const cause = error instanceof Error ? error : new Error(String(error));
      request.answer({ kind: "unknown", cause });
    }
  };
}
