import { isCluster, type RedisClient } from "./client.ts";
import { type CallResult, isServerError } from "./replies.ts";

/** One call that has been written to the connection. */
interface Call {
  readonly sentAt: number;
  readonly epoch: number;
  /** `undefined` once the caller has been told. */
  tell: ((result: CallResult) => void) | undefined;
  /** The client has settled its promise: no sign of life can come through it any more. */
  settled: boolean;
}

/**
 * One connection, and what is known of it: whether it can be written to, whether the server at its
 * end still answers, and whether an answer can be trusted to be the only one.
 */
export class Lane {
  readonly client: RedisClient;
  readonly #onReady: () => void;
  readonly #onClosed: () => void;
  readonly #closedEvents: readonly string[];
  /** Calls without a sign of life since, oldest first. */
  #unanswered: Call[] = [];
  /** Counts the times that the connection was lost: an answer of another epoch may hide a re-sent copy. */
  #epoch = 0;
  /** Whether it has ever been ready; a second connection is of no use before. */
  everReady: boolean;

  constructor(client: RedisClient, onReady: () => void) {
    this.client = client;
    this.everReady = client.status === "ready";
    this.#onReady = () => {
      this.everReady = true;
      onReady();
    };
    this.#onClosed = () => this.#closed();
    // A Cluster loses one node's connection without being closed itself, and re-sends what was on it.
    this.#closedEvents = isCluster(client) ? ["close", "end", "-node"] : ["close", "end"];
    client.on("ready", this.#onReady);
    for (const event of this.#closedEvents) client.on(event, this.#onClosed);
  }

  /** Stops watching the connection; calls on it are answered as closed. */
  abandon(): void {
    this.client.off("ready", this.#onReady);
    for (const event of this.#closedEvents) this.client.off(event, this.#onClosed);
    this.#closed();
  }

  /**
   * Ready, and not suspected of silence. A connection with anything unanswered for `silenceMs` gets
   * nothing more: a server that is away would otherwise have commands queued up for its return.
   */
  isUsable(now: number, silenceMs: number): boolean {
    if (this.client.status !== "ready") return false;
    const oldest = this.#unanswered[0];
    if (oldest === undefined || now - oldest.sentAt < silenceMs) return true;
    this.#probe();
    return false;
  }

  /** Writes one script call. `tell` is called once, and not at all for as long as the server is silent. */
  send(
    script: string,
    keys: readonly string[],
    args: readonly (string | number)[],
    tell: (result: CallResult) => void,
  ): void {
    const call: Call = { sentAt: performance.now(), epoch: this.#epoch, tell, settled: false };
    this.#unanswered.push(call);
    this.client.eval(script, keys.length, ...keys, ...args).then(
      (value) => {
        this.#signOfLife(call);
        this.#tell(call, { kind: "value", value, clean: call.epoch === this.#epoch });
      },
      (error: unknown) => {
        call.settled = true;
        // A client-side time-out says nothing about the server.
        if (isServerError(error)) this.#signOfLife(call);
        this.#tell(call, { kind: "error", error, clean: call.epoch === this.#epoch });
      },
    );
  }

  #tell(call: Call, result: CallResult): void {
    call.tell?.(result);
    call.tell = undefined;
  }

  /** One connection is answered in order, so an answer vouches for everything sent before it. */
  #signOfLife(call: Call): void {
    const at = this.#unanswered.indexOf(call);
    if (at >= 0) this.#unanswered.splice(0, at + 1);
  }

  /**
   * A client that times commands out drops their late answers, so that none could ever clear the
   * suspicion: one harmless call at a time asks again.
   */
  #probe(): void {
    if (this.#unanswered.at(-1)?.settled !== true) return;
    this.send("return 1", [], [], () => {});
  }

  #closed(): void {
    this.#epoch++;
    const calls = this.#unanswered;
    this.#unanswered = [];
    for (const call of calls) this.#tell(call, { kind: "closed" });
  }
}
