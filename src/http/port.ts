import type { AnswerToStore } from "../lock/record.ts";
import type { Problem, Replay } from "./public.ts";

/** A request and the end of its response, as an adapter shows them. */
export interface Exchange {
  /** The object by which the guards of one request find each other's lease. */
  readonly request: object;
  readonly method: string | undefined;
  /** Returns a header with its lines joined. @param name in lower case. */
  header(name: string): string | undefined;
  headerLines(name: string): readonly string[];
  watch(): void;
  /** Notified whenever a member below may have changed. */
  watcher: { responseChanged(): void } | undefined;
  /** The response was ended, by the handler or other code, even after its client has left. */
  readonly isAnswered: boolean;
  /** The client has left, or cannot read the rest of the response. */
  readonly clientLeft: boolean;
  /** The response may still change although the work is done; absent where it is over by then. */
  readonly mayStillChange?: boolean;
  stop(): void;
  /** Gets the promise of the lease's end: until then a platform must not freeze the process. */
  leaseEnds?(ended: Promise<unknown>): void;
}

export interface Capture {
  /** Returns the handler's answer, if any; without `body` if the body is incomplete or too long. */
  answer(): AnswerToStore | undefined;
  /** Returns the answer of the error handler, if the handler has failed. */
  othersAnswer?(): AnswerToStore | undefined;
  /** The handler has failed: an answer that is given from now on is not its own. */
  failed(): void;
  /**
   * The response has ended while work goes on: other code may have answered, such as a time-out.
   */
  responseEnded?(): void;
  /** The handler has succeeded, but its answer was replaced or broken: no repeat may run. */
  readonly isDone?: boolean;
}

export interface WantedAnswer {
  /** Names in lower case. */
  readonly storedHeaders: ReadonlySet<string>;
  readonly maxBodyBytes: number;
}

/** Answers a request instead of its handler. `Args` are the arguments of a framework's handler. */
export type AnswerFunction<Args extends unknown[], Info, Result = unknown> = (
  ...args: [...args: Args, info: Info]
) => Result;

export interface Adapter<Source, Args extends unknown[]> {
  /** Sends the problem of a refusal for which the application has no answer of its own. */
  readonly reject: AnswerFunction<Args, { readonly problem: Problem }>;
  readonly replay: AnswerFunction<Args, Replay>;
  /** The path as the client sent it, with the mount path that a router may cut off. */
  path(source: Source): string;
  /** Returns the content that must be equal on a repeat, without the members `except` of the body. */
  payload(source: Source, except?: readonly string[]): unknown;
  /** Rejects for a body that no parser has read. Absent where handlers read it themselves. */
  checkParsed?(source: Source): Promise<void>;
}
