import { type Lease, MemoryStore, SubmitLock } from "submit-lock";
import { submitGuard } from "submit-lock/fetch";

const lock = new SubmitLock({ store: new MemoryStore() });
export const key: Promise<string> = lock.withLock("42", {}, async (lease: Lease) => lease.key);
const guard = submitGuard({ lock, userId: ({ headers }) => headers.get("x-user") });
export const POST = guard.protect(() => new Response("placed"));
