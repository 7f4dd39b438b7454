export type { Attempt } from "./lock/attempt.ts";
export type {
  AcquireMessage,
  LostMessage,
  ReleaseMessage,
  RetireMessage,
  SubmitLockChannels,
} from "./lock/diagnostics.ts";
export {
  AnsweredTwiceError,
  type AnySubmitLockError,
  InvalidOptionError,
  InvalidUserIdError,
  isSubmitLockError,
  LockClosedError,
  LockContendedError,
  LockLostError,
  LockMisconfiguredError,
  LockUnavailableError,
  type LostReason,
  SubmitLockError,
  type SubmitLockErrorCode,
} from "./lock/errors.ts";
export type { Lease } from "./lock/lease.ts";
export type { SubmitLockOptions } from "./lock/options.ts";
export type { ReleaseOutcome } from "./lock/retirement.ts";
export type {
  AcquireReply,
  Answered,
  ContendedAnswer,
  Copy,
  LockCommand,
  LockStore,
  LockTimes,
  NoAnswer,
  OwnedReply,
} from "./lock/store.ts";
export type { UserId } from "./lock/submit-key.ts";
export { type CloseOptions, type LockedWork, SubmitLock } from "./lock/submit-lock.ts";
export type { WithLockOptions } from "./lock/waiting.ts";
export { MemoryStore } from "./stores/memory-store.ts";
export type { RedisClient } from "./stores/redis/client.ts";
export { RedisStore } from "./stores/redis/redis-store.ts";
