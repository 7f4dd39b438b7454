import { nodeOf } from "./cluster-node.ts";
import { isCluster, type RedisClient } from "./ioredis.ts";
import { type CallResult, isServerError } from "./replies.ts";
import { type Call, Unanswered } from "./unanswered.ts";

/**
 * One connection, and what is known of it: whether it can be written to, whether the server at its
 * end still answers, and whether an answer can be trusted to be the only one.
 */
export class Connection {
  readonly client: RedisClient;
  readonly #onReady: () => void;
  readonly #onClosed: () => void;
  readonly #closedEvents: readonly string[];
  readonly #unanswered = new Unanswered();
  /** Whether it has ever been ready; a second connection is of no use before. */
  everReady: boolean;
  /** When it was last found silent since it came up, by the monotonic clock. */
  silentAt: number = Number.NEGATIVE_INFINITY;

  constructor(client: RedisClient, onReady: () => void) {
    this.client = client;
    this.everReady = client.status === "ready";
    this.#onReady = () => {
      this.everReady = true;
      this.silentAt = Number.NEGATIVE_INFINITY;
      onReady();
    };
    this.#onClosed = () => this.#closed();
    // A Cluster loses one node's connection without being closed itself, and re-sends what was on it.
    this.#closedEvents = isCluster(client) ? ["close", "end", "-node"] : ["close", "end"];
    client.on("ready", this.#onReady);
    for (const event of this.#closedEvents) client.on(event, this.#onClosed);
  }

  /** Stops watching the connection; calls that are under way count as closed. */
  abandon(): void {
    this.client.off("ready", this.#onReady);
    for (const event of this.#closedEvents) this.client.off(event, this.#onClosed);
    this.#closed();
  }

  /** How many calls no sign of life has followed. */
  get underWay(): number {
    return this.#unanswered.count;
  }

  /**
   * Ready, and the server behind this key not suspected of silence. One with anything unanswered
   * for `silenceMs` gets nothing more: a server that is away would otherwise have commands queued
   * up for its return.
   */
  isUsable(key: string, silenceMs: number): boolean {
    if (this.client.status !== "ready") return false;
    const node = nodeOf(this.client, key);
    if (!this.#unanswered.isSilent(node, silenceMs)) return true;
    this.silentAt = performance.now();
    // A client that times commands out drops their late answers, so that none could ever clear the
    // suspicion: one harmless call at a time asks again.
    if (this.#unanswered.isForgotten(node)) this.send("return 1", [key], [], () => {});
    return false;
  }

  /**
   * Writes one script call. `tell` is called once, and not at all for as long as the server is
   * silent.
   */
  send(
    script: string,
    keys: readonly string[],
    args: readonly (string | number)[],
    tell: (result: CallResult) => void,
  ): void {
    const call: Call = {
      node: nodeOf(this.client, keys[0] ?? ""),
      sentAt: performance.now(),
      settled: false,
      tell,
    };
    this.#unanswered.add(call);
    this.#eval(script, keys, args).then(
      (value) => {
        this.#unanswered.answered(call);
        tellOnce(call, { kind: "value", value });
      },
      (error: unknown) => {
        call.settled = true;
        // A client-side time-out says nothing about the server.
        if (isServerError(error)) this.#unanswered.answered(call);
        tellOnce(call, { kind: "error", error });
      },
    );
  }

  #eval(
    script: string,
    keys: readonly string[],
    args: readonly (string | number)[],
  ): Promise<unknown> {
    try {
      return Promise.resolve(this.client.eval(script, keys.length, ...keys, ...args));
    } catch (error) {
      // A client that throws instead of rejecting is heard like any other.
      return Promise.reject(error);
    }
  }

  /**
   * The client may write the calls again on its next connection, and an answer to such a copy would
   * hide that the first is still on its way: nothing that comes later is listened to.
   */
  #closed(): void {
    for (const call of this.#unanswered.takeAll()) tellOnce(call, { kind: "closed" });
  }
}

function tellOnce(call: Call, result: CallResult): void {
  const { tell } = call;
  call.tell = undefined;
  tell?.(result);
}
