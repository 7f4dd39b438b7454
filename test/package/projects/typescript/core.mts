import { type Lease, MemoryStore, SubmitLock } from "submit-lock";

const lock = new SubmitLock({ store: new MemoryStore() });
export const key: Promise<string> = lock.withLock("42", {}, async (lease: Lease) => lease.key);
