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
  NoFingerprintError,
  SubmitLockError,
  type SubmitLockErrorCode,
} from "./errors.ts";
export type { Attempt } from "./lock/attempt.ts";
export type {
  AcquireMessage,
  LostMessage,
  ReleaseMessage,
  ReleaseOutcome,
  RetireMessage,
  SubmitLockChannels,
} from "./lock/diagnostics.ts";
export type { Lease } from "./lock/lease.ts";
export type { SubmitLockOptions } from "./lock/options.ts";
export type {
  AcquireReply,
  Answered,
  ContendedAnswer,
  LockCommand,
  LockRequest,
  LockStore,
  LockTimes,
  NoAnswer,
  OwnedReply,
} from "./lock/store.ts";
export type { UserId } from "./lock/submit-key.ts";
export { type CloseOptions, type LockedWork, SubmitLock } from "./lock/submit-lock.ts";
export type { WithLockOptions } from "./lock/with-lock.ts";
export { MemoryStore } from "./stores/memory-store.ts";
export type { RedisClient } from "./stores/redis/ioredis.ts";
export { RedisStore } from "./stores/redis/redis-store.ts";
