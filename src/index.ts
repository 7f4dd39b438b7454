export * from "./errors.ts";
export { type IdempotencyKey, parseIdempotencyKey } from "./idempotency-key.ts";
export type {
  AcquireMessage,
  CompleteMessage,
  CompleteOutcome,
  DuplicateMessage,
  ForgetMessage,
  LostMessage,
  RefusalMessage,
  ReleaseMessage,
  ReleaseOutcome,
  RetireMessage,
  StoreMessage,
  SubmitLockChannels,
} from "./lock/channels.ts";
export type {
  Attempt,
  Lease,
  LockedWork,
  ReleaseOptions,
  SubmissionAttempt,
  ToldOptions,
} from "./lock/lease.ts";
export type {
  CheckOptions,
  ForgetOptions,
  ForgetResult,
  FreeOptions,
  LockStats,
} from "./lock/on-call.ts";
export type { OnceOptions, OnceResult, WithLockOptions } from "./lock/once.ts";
export type { SubmitLockOptions } from "./lock/options.ts";
export type { AnswerHeaders, AnswerToStore, StoredAnswer } from "./lock/record.ts";
export type { LookUp, RepeatAttempt } from "./lock/repeats.ts";
export type { SealOptions, Unreadable } from "./lock/seal.ts";
export type * from "./lock/store.ts";
export {
  type AcquireOptions,
  fingerprintOf,
  type IdentifiedOptions,
  type Submission,
  type SubmissionIdentity,
} from "./lock/submission.ts";
export type { UserId } from "./lock/submit-key.ts";
export { type CloseOptions, SubmitLock } from "./lock/submit-lock.ts";
export { type Problem, type ProblemCode, problemOf } from "./problem.ts";
export { MemoryStore, type Outage } from "./stores/memory-store.ts";
export type { RedisClient } from "./stores/redis/clients/port-of.ts";
export { RedisStore, type RedisStoreOptions } from "./stores/redis/redis-store.ts";
