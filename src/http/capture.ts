import type { AnswerToStore } from "../lock/record.ts";

/** What of an answer is to be kept. */
export interface WantedAnswer {
  /** In lower case. */
  readonly storedHeaders: ReadonlySet<string>;
  readonly maxBodyBytes: number;
}

/** What a handler has answered, as an adapter saw it. */
export interface Capture {
  /** `undefined` if there is none; without its body if that was not kept. */
  answer(): AnswerToStore | undefined;
  /** The handler has failed: whatever it has not answered by now is not its answer. */
  failed(): void;
}
