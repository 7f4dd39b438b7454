/** The types that every adapter exports beside its guard. */
export type { ReplayMessage } from "../lock/channels.ts";
export type {
  AttemptLike,
  IdempotencyOptions,
  LeaseLike,
  LockLike,
  NoId,
  NoUser,
} from "./options.ts";
export type {
  Anonymous,
  Contended,
  KeyMissing,
  Mismatch,
  Problem,
  ProblemCode,
  Replay,
  Unavailable,
} from "./refusals.ts";
export type { StorePolicy } from "./stored-answer.ts";
export type { RequestSubmission } from "./submission.ts";
