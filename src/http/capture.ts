import type { AnswerToStore } from "../lock/answer.ts";

/** What a handler has answered, as an adapter saw it. */
export interface Capture {
  /** `undefined` if there is none; without its body if that was not kept. */
  answer(): AnswerToStore | undefined;
}
