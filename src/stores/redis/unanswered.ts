import type { CallResult } from "./replies.ts";

/** One call that has been written to a connection. */
export interface Call {
  /** The server that it went to; a Cluster has several behind one client. */
  readonly node: string;
  readonly sentAt: number;
  /** The client has given it up, and would not hand on an answer any more. */
  settled: boolean;
  /** `undefined` once the caller has been told. */
  tell: ((result: CallResult) => void) | undefined;
}

/** The calls of one connection that no sign of life has followed, oldest first, for each server. */
export class Unanswered {
  readonly #calls = new Map<string, Call[]>();

  add(call: Call): void {
    const calls = this.#calls.get(call.node);
    if (calls === undefined) this.#calls.set(call.node, [call]);
    else calls.push(call);
  }

  /** One server answers in order, so an answer vouches for everything sent before it. */
  answered(call: Call): void {
    const calls = this.#calls.get(call.node);
    const at = calls?.indexOf(call) ?? -1;
    if (at >= 0) calls?.splice(0, at + 1);
  }

  get count(): number {
    let count = 0;
    for (const calls of this.#calls.values()) count += calls.length;
    return count;
  }

  isSilent(node: string, silenceMs: number): boolean {
    const oldest = this.#calls.get(node)?.[0];
    return oldest !== undefined && performance.now() - oldest.sentAt >= silenceMs;
  }

  /** Whether the client has given up every call that could still bring a sign of life. */
  isForgotten(node: string): boolean {
    return this.#calls.get(node)?.at(-1)?.settled === true;
  }

  takeAll(): Call[] {
    const all = [...this.#calls.values()].flat();
    this.#calls.clear();
    return all;
  }
}
