import type { Exchange } from "../http/port.ts";

export class FetchExchange implements Exchange {
  readonly request: Request;
  leaseEnds?: (ended: Promise<unknown>) => void;
  isAnswered = false;
  clientLeft: boolean;
  watcher: { responseChanged(): void } | undefined;
  /** Kept, because a server may give a request that was cloned another signal. */
  readonly #signal: AbortSignal | undefined;
  #cancel: (() => void) | undefined;
  readonly #onAbort = (): void => {
    this.clientLeft = true;
    this.#cancel?.();
    this.watcher?.responseChanged();
  };

  constructor(request: Request) {
    this.request = request;
    // A signal that has aborted already will not call the listener.
    this.#signal = request.signal;
    this.clientLeft = this.#signal?.aborted === true;
  }

  get method(): string {
    return this.request.method;
  }

  get mayStillChange(): boolean {
    return !this.isAnswered && !this.clientLeft;
  }

  header(name: string): string | undefined {
    return this.request.headers.get(name) ?? undefined;
  }

  /** Splits at every comma, because `Headers` has the lines joined: a comma may separate two. */
  headerLines(name: string): readonly string[] {
    return this.header(name)?.split(",") ?? [];
  }

  watch(): void {
    this.#signal?.addEventListener("abort", this.#onAbort);
  }

  stop(): void {
    this.#signal?.removeEventListener("abort", this.#onAbort);
  }

  /** Calls `cancel` when the client leaves, or has left: nothing reads the stream any more. */
  onClosed(cancel: () => void): void {
    this.#cancel = cancel;
    if (this.clientLeft) cancel();
  }

  /** The response is complete, or its body was ended, cancelled or broken off. */
  end(): void {
    this.isAnswered = true;
    this.watcher?.responseChanged();
  }
}
