import { DatabaseProof } from "./database-proof.ts";
import {
  type ClusterNode,
  isCluster,
  isServerError,
  nodesOf,
  type RedisClient,
} from "./ioredis.ts";
import { LoadedScripts } from "./loaded-scripts.ts";
import { nodeOf } from "./slots.ts";

/**
 * What came back from one call on one connection. A call whose connection was lost is `closed`,
 * whatever its client makes of it later: so every value and every error is the only answer to the
 * only write of its call, as the port demands.
 */
export type CallResult =
  | { readonly kind: "value"; readonly value: unknown }
  | { readonly kind: "error"; readonly error: unknown }
  | { readonly kind: "closed" }
  /** It was refused unexecuted because it named the script by its digest: the next goes by the text. */
  | { readonly kind: "not-loaded" };

/** One call that was written and that no sign of life has followed. */
interface Call {
  /** The server that it went to: a Cluster has several behind one client. */
  readonly node: string;
  readonly sentAt: number;
  /** The client has given it up by a time-out of its own, and would drop a late answer. */
  isGivenUp: boolean;
  /** `undefined` once the caller was told. */
  tell: ((result: CallResult) => void) | undefined;
}

/** Is notified while a connection is watched. */
export interface ConnectionWatcher {
  /** The connection came up, and can be used. */
  ready(): void;
  /** Rule 22: it came up, and the server refused its database. */
  refused(error: Error): void;
}

/** One client, and what is known of its connection: whether it is ready, and whether it is silent. */
export class Connection {
  readonly client: RedisClient;
  /** Whether it has been ready since the watch began, or before. */
  everReady = false;
  /** When it was last found silent since it came up, by the monotonic clock. */
  silentAt: number = Number.NEGATIVE_INFINITY;
  readonly #closedEvents: readonly string[];
  /** Oldest first, for each node. */
  readonly #unanswered = new Map<string, Call[]>();
  readonly #scripts = new LoadedScripts();
  readonly #database: DatabaseProof;
  #watcher: ConnectionWatcher | undefined;

  constructor(client: RedisClient) {
    this.client = client;
    // A Cluster that loses the connection to one node stays open, and re-sends what was in flight.
    this.#closedEvents = isCluster(client) ? ["close", "end", "-node"] : ["close", "end"];
    this.#database = new DatabaseProof(
      client,
      (answer, tell) => this.follow("", answer, performance.now(), tell),
      () => this.#watcher?.ready(),
      (error) => this.#watcher?.refused(error),
    );
  }

  watch(watcher: ConnectionWatcher): void {
    this.#watcher = watcher;
    this.client.on("ready", this.#readied);
    for (const event of this.#closedEvents) this.client.on(event, this.#closed);
    this.client.on("select", this.#database.selected);
    // Rule 2: with `clusterNodeRetryStrategy` a node comes back, and the Cluster tells nothing of it.
    this.client.on("+node", this.#watchNode);
    for (const node of nodesOf(this.client)) this.#watchNode(node);
    if (this.client.status !== "ready") return;
    this.everReady = true;
    this.#database.ask();
  }

  /** Ends the watch. What is in flight counts as closed. */
  unwatch(): void {
    this.#watcher = undefined;
    this.client.off("ready", this.#readied);
    for (const event of this.#closedEvents) this.client.off(event, this.#closed);
    this.client.off("select", this.#database.selected);
    this.client.off("+node", this.#watchNode);
    for (const node of nodesOf(this.client)) node.off("close", this.#closed);
    this.#closed();
  }

  /** How many calls were written that no sign of life has followed. */
  get inFlight(): number {
    let count = 0;
    for (const calls of this.#unanswered.values()) count += calls.length;
    return count;
  }

  /** The server that has the slot, as far as the client knows. */
  nodeOf(slot: number): string {
    return nodeOf(this.client, slot);
  }

  /** Rules 9 and 22: whether it is ready, in the client's database, and answers. */
  isUsable(slot: number, silenceMs: number): boolean {
    if (this.client.status !== "ready") return false;
    return this.isInDatabase && this.#answers(slot, silenceMs);
  }

  /** Rule 22: whether commands go to the client's database, as far as that is certain. */
  get isInDatabase(): boolean {
    return this.#database.isDone;
  }

  /** Whether it is about to be usable: nothing but the proof of its database is missing. */
  isProving(slot: number, silenceMs: number): boolean {
    const isReady = this.client.status === "ready";
    return isReady && !this.isInDatabase && this.#answers(slot, silenceMs);
  }

  /**
   * Rule 9: whether it has left nothing unanswered for `silenceMs` on the node of the slot. A server
   * that is away would otherwise find a queue of commands at its return.
   */
  #answers(slot: number, silenceMs: number): boolean {
    const oldest = this.#unanswered.get(this.nodeOf(slot))?.[0];
    return oldest === undefined || performance.now() - oldest.sentAt < silenceMs;
  }

  /**
   * Takes note that the connection was not usable for the slot. If it is ready, it has to prove its
   * database, or it is silent. Writes a probe, one at a time, where the client has given up every call
   * whose answer could end the suspicion.
   *
   * @param key one of the slot, for the probe.
   */
  suspect(slot: number, key: string, silenceMs: number): void {
    if (this.client.status !== "ready") return;
    if (this.#answers(slot, silenceMs)) {
      this.#database.ask();
      return;
    }
    this.silentAt = performance.now();
    const node = this.nodeOf(slot);
    const newest = this.#unanswered.get(node)?.at(-1);
    if (newest?.isGivenUp === true) this.send(node, "return 1", [key], [], () => {});
  }

  /**
   * Writes one script call: the digest of the script where the node is known to have it, else its
   * text.
   *
   * @param node of the keys' slot.
   * @param tell called at most once; never while the server is silent (rule 10: whoever waits for an
   *   answer has a timer of its own).
   */
  send(
    node: string,
    script: string,
    keys: readonly string[],
    args: readonly (string | number)[],
    tell: (result: CallResult) => void,
  ): void {
    const call = this.#written(node, performance.now(), tell);
    const digest = this.#scripts.digestOf(node, script);
    this.#call(digest, script, keys, args).then(
      (value) => {
        this.#scripts.add(node, script);
        this.#answered(call);
        tellOnce(call, { kind: "value", value });
      },
      (error: unknown) => {
        call.isGivenUp = true;
        // Rule 9: a time-out of the client says nothing about the server.
        if (isServerError(error)) this.#answered(call);
        const isNotLoaded = digest !== undefined && this.#scripts.heard(node, script, error);
        tellOnce(call, isNotLoaded ? { kind: "not-loaded" } : { kind: "error", error });
      },
    );
  }

  /**
   * Follows what was written to a node by other means than {@link send}.
   *
   * @param answer settles when the node has answered.
   * @param dueAt when it is to answer, by the monotonic clock: it is not silent before that.
   * @param tell as of `send`.
   */
  follow(
    node: string,
    answer: Promise<unknown>,
    dueAt: number,
    tell: (result: CallResult) => void,
  ): void {
    const call = this.#written(node, dueAt, tell);
    answer.then(
      (value) => {
        this.#answered(call);
        tellOnce(call, { kind: "value", value });
      },
      (error: unknown) => {
        call.isGivenUp = true;
        if (isServerError(error)) this.#answered(call);
        tellOnce(call, { kind: "error", error });
      },
    );
  }

  #written(node: string, sentAt: number, tell: (result: CallResult) => void): Call {
    const call: Call = { node, sentAt, isGivenUp: false, tell };
    const calls = this.#unanswered.get(node);
    if (calls === undefined) this.#unanswered.set(node, [call]);
    else calls.push(call);
    return call;
  }

  #call(
    digest: string | undefined,
    script: string,
    keys: readonly string[],
    args: readonly (string | number)[],
  ): Promise<unknown> {
    const { client } = this;
    try {
      return Promise.resolve(
        digest === undefined || client.evalsha === undefined
          ? client.eval(script, keys.length, ...keys, ...args)
          : client.evalsha(digest, keys.length, ...keys, ...args),
      );
    } catch (error) {
      // Of a client that throws where ioredis would reject.
      return Promise.reject(error);
    }
  }

  /** A server answers in order, so an answer vouches for everything that was sent to it before. */
  #answered(call: Call): void {
    const calls = this.#unanswered.get(call.node);
    const at = calls?.indexOf(call) ?? -1;
    if (at >= 0) calls?.splice(0, at + 1);
  }

  readonly #readied = (): void => {
    this.everReady = true;
    this.#scripts.forget();
    this.silentAt = Number.NEGATIVE_INFINITY;
    if (this.isInDatabase) this.#watcher?.ready();
    else this.#database.ask();
  };

  /** The client itself forgets a node with its listeners once it has lost it for good. */
  readonly #watchNode = (node: ClusterNode): void => {
    node.on("close", this.#closed);
  };

  /**
   * Rule 2: the client may write the calls again on its next connection, and the answer to the second
   * write would hide that the first may still take effect. So the callers are told now, and nothing
   * that comes for these calls later is listened to.
   */
  readonly #closed = (): void => {
    const calls = [...this.#unanswered.values()].flat();
    this.#unanswered.clear();
    this.#database.forget();
    for (const call of calls) tellOnce(call, { kind: "closed" });
  };
}

function tellOnce(call: Call, result: CallResult): void {
  const { tell } = call;
  call.tell = undefined;
  tell?.(result);
}
