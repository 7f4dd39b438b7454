import { createHash } from "node:crypto";
import { DatabaseProof } from "./database-proof.ts";
import { Gathering } from "./gathering.ts";
import {
  type ClusterNode,
  databaseOf,
  firstDatabaseOf,
  isCluster,
  isServerError,
  masterOf,
  nodesOf,
  type RedisClient,
} from "./ioredis.ts";

/**
 * The result of one call on one connection. A call whose connection was lost is `closed`, whatever its
 * client makes of it later: so every value and every error is the only answer to the
 * only write of its call, as the port demands.
 */
export type CallResult =
  | { readonly kind: "value"; readonly value: unknown }
  | { readonly kind: "error"; readonly error: unknown }
  | { readonly kind: "closed" }
  /** It was refused unexecuted because it named the script by its digest: the next call has the text. */
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

/** One client, and the known state of its connection: ready, silent, lost. */
export class Connection {
  readonly client: RedisClient;
  /** How many calls were written that no sign of life has followed. */
  inFlight = 0;
  /** Whether it has been ready since the watch began, or before. */
  everReady = false;
  /** When it was last found silent since it came up, by the monotonic clock. */
  silentAt: number = Number.NEGATIVE_INFINITY;
  readonly #closedEvents: readonly string[];
  /** Oldest first, for each node. */
  readonly #unanswered = new Map<string, Call[]>();
  /**
   * The SHA-1 of each script that a node has, as far as this process knows: it is called by that
   * instead of by its text of 1 to 3 KB. A server forgets scripts at a restart, at SCRIPT FLUSH, at a
   * failover to a replica that never saw them and, since Redis 7.4, when it has seen 500 others. It
   * then says so, and is sent the text again.
   */
  readonly #digests = new Map<string, Map<string, string>>();
  /** This user may call scripts by their text alone. */
  #needsTexts = false;
  /** Rule 22: for a client that is or was on another database than 0. */
  #database: DatabaseProof | undefined;
  readonly #isCluster: boolean;
  readonly gathering: Gathering;
  #watcher: ConnectionWatcher | undefined;

  constructor(client: RedisClient) {
    this.client = client;
    this.#isCluster = isCluster(client);
    this.gathering = new Gathering(client);
    // A Cluster that loses the connection to one node stays open, and re-sends what was in flight.
    this.#closedEvents = this.#isCluster ? ["close", "end", "-node"] : ["close", "end"];
    this.#proveDatabase();
  }

  #proveDatabase(): void {
    const isNeeded = databaseOf(this.client) !== 0 || firstDatabaseOf(this.client) !== 0;
    if (!isNeeded || this.#database !== undefined) return;
    this.#database = new DatabaseProof(this.client, {
      follow: (answer, tell) => this.follow("", answer, performance.now(), tell),
      proved: () => this.#watcher?.ready(),
      refused: (error) => this.#watcher?.refused(error),
    });
  }

  watch(watcher: ConnectionWatcher): void {
    this.#watcher = watcher;
    this.client.on("ready", this.#readied);
    for (const event of this.#closedEvents) this.client.on(event, this.#closed);
    this.client.on("select", this.#selected);
    // Rule 2: with `clusterNodeRetryStrategy` a node comes back, and the Cluster emits nothing.
    this.client.on("+node", this.#watchNode);
    for (const node of nodesOf(this.client)) this.#watchNode(node);
    if (this.client.status !== "ready") return;
    this.everReady = true;
    this.#proveDatabase();
    this.#database?.ask();
  }

  /** Ends the watch. Calls in flight count as closed. */
  unwatch(): void {
    this.#watcher = undefined;
    this.client.off("ready", this.#readied);
    for (const event of this.#closedEvents) this.client.off(event, this.#closed);
    this.client.off("select", this.#selected);
    this.client.off("+node", this.#watchNode);
    for (const node of nodesOf(this.client)) node.off("close", this.#closed);
    this.#closed();
  }

  /** How many of them were for one node: one that is silent holds back nothing for the others. */
  inFlightTo(node: string): number {
    return this.#unanswered.get(node)?.length ?? 0;
  }

  /**
   * Rule 9: on a Cluster, the node that has the slot, so that one silent node does not put the others
   * under suspicion; always the same otherwise. A wrong answer costs availability, not safety.
   */
  nodeOf(slot: number): string {
    return (this.#isCluster ? masterOf(this.client, slot) : undefined) ?? "";
  }

  /** Rules 9 and 22: whether it is ready, in the client's database, and answers. */
  isUsable(slot: number, silenceMs: number): boolean {
    if (this.client.status !== "ready" || this.#database?.isDone === false) return false;
    return this.answers(slot, silenceMs);
  }

  /** Rule 22: whether commands go to the client's database, as far as that is certain. */
  get isInDatabase(): boolean {
    return this.#database?.isDone !== false;
  }

  /**
   * Rule 9: whether it has left nothing unanswered for `silenceMs` on the node of the slot. A server
   * that is away would otherwise find a queue of commands at its return.
   */
  answers(slot: number, silenceMs: number): boolean {
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
    if (this.answers(slot, silenceMs)) {
      this.#database?.ask();
      return;
    }
    this.silentAt = performance.now();
    const node = this.nodeOf(slot);
    const newest = this.#unanswered.get(node)?.at(-1);
    if (newest?.isGivenUp === true) this.send(node, "return 1", [key], [], () => {});
  }

  /**
   * Writes one script call: the digest of the script where it is known to be loaded, else its text.
   *
   * @param node of the keys' slot.
   * @param tell called at most once; never while the server is silent (rule 10: the caller has a
   *   timer of its own).
   * @param client the node's own, for a call that declares no key.
   */
  send(
    node: string,
    script: string,
    keys: readonly string[],
    args: readonly (string | number)[],
    tell: (result: CallResult) => void,
    client: Pick<RedisClient, "eval" | "evalsha"> = this.client,
  ): void {
    const sentAt = performance.now();
    const hasDigests = !this.#needsTexts && client.evalsha !== undefined;
    const digest = hasDigests ? this.#digests.get(node)?.get(script) : undefined;
    let answer: Promise<unknown>;
    try {
      answer = Promise.resolve(
        digest === undefined
          ? client.eval(script, keys.length, ...keys, ...args)
          : client.evalsha?.(digest, keys.length, ...keys, ...args),
      );
    } catch (error) {
      // A client that throws where ioredis would reject.
      answer = Promise.reject(error);
    }
    this.follow(node, answer, sentAt, (result) => {
      if (digest === undefined && result.kind === "value" && hasDigests) this.#loaded(node, script);
      const isNotLoaded =
        digest !== undefined &&
        result.kind === "error" &&
        this.#isNotLoaded(node, script, result.error);
      tell(isNotLoaded ? { kind: "not-loaded" } : result);
    });
  }

  /** A node has executed it, and so has it. */
  #loaded(node: string, script: string): void {
    const digests = this.#digests.get(node) ?? new Map<string, string>();
    if (digests.has(script)) return;
    digests.set(script, createHash("sha1").update(script).digest("hex"));
    this.#digests.set(node, digests);
  }

  /** Whether the error of a call by the digest says that nothing was executed because of the digest. */
  #isNotLoaded(node: string, script: string, error: unknown): boolean {
    if (!isServerError(error)) return false;
    if (error.message.startsWith("NOSCRIPT")) {
      this.#digests.get(node)?.delete(script);
      return true;
    }
    const isRefused = /^(NOPERM|ERR unknown command)\b.*\bevalsha\b/i.test(error.message);
    this.#needsTexts ||= isRefused;
    return isRefused;
  }

  /**
   * Follows a command that was written to a node.
   *
   * @param answer settles when the node has answered.
   * @param dueAt when it must have answered, by the monotonic clock: it is not silent before that.
   * @param tell as of `send`.
   */
  follow(
    node: string,
    answer: Promise<unknown>,
    dueAt: number,
    tell: (result: CallResult) => void,
  ): void {
    const call: Call = { node, sentAt: dueAt, isGivenUp: false, tell };
    this.inFlight++;
    const calls = this.#unanswered.get(node);
    if (calls === undefined) this.#unanswered.set(node, [call]);
    else calls.push(call);
    answer.then(
      (value) => this.#settled(call, { kind: "value", value }),
      (error: unknown) => this.#settled(call, { kind: "error", error }),
    );
  }

  #settled(call: Call, result: Exclude<CallResult, { kind: "closed" | "not-loaded" }>): void {
    call.isGivenUp = result.kind === "error";
    // Rule 9: a time-out of the client says nothing about the server.
    if (result.kind === "value" || isServerError(result.error)) {
      // A server answers in order, so an answer vouches for everything that was sent to it before.
      const calls = this.#unanswered.get(call.node);
      this.inFlight -= calls?.splice(0, calls.indexOf(call) + 1).length ?? 0;
    }
    const { tell } = call;
    call.tell = undefined;
    tell?.(result);
  }

  readonly #readied = (): void => {
    this.everReady = true;
    // It may lead to another server, or to another user's permissions.
    this.#digests.clear();
    this.#needsTexts = false;
    this.silentAt = Number.NEGATIVE_INFINITY;
    this.#proveDatabase();
    if (this.isInDatabase) this.#watcher?.ready();
    else this.#database?.ask();
  };

  /** The application has selected a database. */
  readonly #selected = (): void => {
    this.#proveDatabase();
    this.#database?.forget();
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
    this.inFlight = 0;
    this.#database?.forget();
    for (const call of calls) {
      call.tell?.({ kind: "closed" });
      call.tell = undefined;
    }
  };
}
