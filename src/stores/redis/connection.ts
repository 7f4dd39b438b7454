import { createHash } from "node:crypto";
import { performance } from "../../time.ts";
import {
  type ClientPort,
  isServerError,
  plainError,
  type ScriptCall,
  type ServerPort,
} from "./clients/port.ts";
import { Gathering } from "./gathering.ts";
import { isOfReplica, lacksReplicas } from "./redis-errors.ts";

/**
 * The result of one call on one connection. A call whose connection was lost is `closed`, even if
 * its client writes it again. So a value or an error is the answer to the only write of the call.
 */
export type CallResult =
  | { readonly kind: "value"; readonly value: unknown }
  | { readonly kind: "error"; readonly error: unknown }
  | { readonly kind: "closed" }
  /** Not executed: the server lacks the script, or permits no EVALSHA. The next call has the text. */
  | { readonly kind: "not-loaded" };

interface Call {
  readonly node: string;
  /** The monotonic time from which the silence of a missing answer is measured. */
  readonly silentFrom: number;
  /** The client itself has failed the call, as by its own time-out, and drops a late answer. */
  isGivenUp: boolean;
  /** `undefined` once the caller has the result. */
  tell: ((result: CallResult) => void) | undefined;
  /** The text of the script, and its digest where that was sent instead of the text. */
  readonly script: string | undefined;
  readonly digest: string | undefined;
}

export interface ConnectionWatcher {
  /** Requests can be written: the connection is up, and its database proved if rule 22 needs it. */
  ready(): void;
  /** The client has failed, or (rule 22) the server refused the proof or named another database. */
  failed(error: Error): void;
}

type FollowResult = (answer: Promise<unknown>, tell: (result: CallResult) => void) => void;

/** Rule 22: whether the commands of one connection go to the client's database. */
class DatabaseProof {
  readonly #client: ClientPort;
  readonly #follow: FollowResult;
  /** Whether to ask: the client needs the proof, or has needed it on an earlier database. */
  #isNeeded: boolean;
  /** The database that a connection of the client was proved to be in, and that connection. */
  #proved: { readonly database: number; readonly connection: unknown } | undefined;
  #asked: { readonly connection: unknown } | undefined;

  /**
   * @param follow awaits an answer, and tells its result. An answer that is missing for too long
   * makes the connection silent (rule 9).
   */
  constructor(client: ClientPort, follow: FollowResult) {
    this.#client = client;
    this.#follow = follow;
    this.#isNeeded = client.needsProof;
  }

  get isCertain(): boolean {
    if (!this.#isNeeded) return true;
    const { database, connection } = this.#client;
    // Compare the connection, too: while no lock is open, the event of its loss is not heard.
    return this.#proved?.database === database && this.#proved.connection === connection;
  }

  /** Asks which database a ready connection is in, unless that is proved or a question is open. */
  ask(watcher: ConnectionWatcher | undefined): void {
    this.#isNeeded ||= this.#client.needsProof;
    const { connection } = this.#client;
    if (this.isCertain || (this.#asked && this.#asked.connection === connection)) return;
    const asked = { connection };
    this.#asked = asked;
    this.#follow(this.#client.askDatabase(), (result) => {
      if (this.#asked !== asked) return;
      this.#asked = undefined;
      const { database } = this.#client;
      if (result.kind === "error" && isServerError(result.error)) {
        watcher?.failed(plainError(result.error));
      } else if (result.kind === "value" && result.value === database) {
        this.#proved = { database, connection };
        watcher?.ready();
      } else if (result.kind === "value" && typeof result.value === "number") {
        const text = `the connection is in database ${result.value}, and not in database ${database}`;
        watcher?.failed(new Error(text));
      }
    });
  }

  /** Called when the connection was lost, or the application has selected another database. */
  forget(): void {
    this.#isNeeded ||= this.#client.needsProof;
    this.#proved = undefined;
    this.#asked = undefined;
  }
}

const ofProbe = (): void => {};

export class Connection {
  readonly client: ClientPort;
  /** How many calls have no answer, except those whose node has answered a later call. */
  inFlight = 0;
  everReady = false;
  /** When the connection was last found silent since it came up (monotonic); −∞ for never. */
  silentAt: number = Number.NEGATIVE_INFINITY;
  /** Rule 9: by its last answer, the server is a replica or, off a Cluster, has lost its replicas. */
  mayBeDemoted = false;
  /** The calls that wait for each node, oldest first. */
  readonly #unanswered = new Map<string, Call[]>();
  /** Calls without an answer whose node has answered a later one: the client may repeat them. */
  readonly #repeated = new Set<Call>();
  /** The SHA-1 of each script that a node has, by node: calls can leave out the text. */
  readonly #digests = new Map<string, Map<string, string>>();
  /** The server does not permit this user EVALSHA. */
  #needsTexts = false;
  readonly database: DatabaseProof;
  readonly gathering: Gathering;
  #watcher: ConnectionWatcher | undefined;
  #endWatch: () => void = () => {};

  constructor(client: ClientPort) {
    this.client = client;
    this.gathering = new Gathering(client, (answer) =>
      this.follow("", answer, performance.now(), ofProbe),
    );
    this.database = new DatabaseProof(client, (answer, tell) =>
      this.follow("", answer, performance.now(), tell),
    );
  }

  watch(watcher: ConnectionWatcher): void {
    this.#watcher = watcher;
    this.#endWatch = this.client.watch({
      up: this.#readied,
      lost: this.#closed,
      selected: () => this.database.forget(),
      failed: (error) => watcher.failed(error),
    });
    if (this.client.status !== "ready") return;
    this.everReady = true;
    this.database.ask(watcher);
  }

  unwatch(): void {
    this.#watcher = undefined;
    this.#endWatch();
    this.#closed();
  }

  inFlightTo(node: string): number {
    return this.#unanswered.get(node)?.length ?? 0;
  }

  /** Rules 9 and 22: whether a request may be written now. */
  isUsable(slot: number, silenceMs: number): boolean {
    return this.database.isCertain && this.client.isReady(slot) && this.answers(slot, silenceMs);
  }

  /** Rule 9: `true` unless a call to the slot's node has been unanswered for `silenceMs`. */
  answers(slot: number, silenceMs: number): boolean {
    const oldest = this.#unanswered.get(this.client.nodeOf(slot))?.[0];
    return oldest === undefined || performance.now() - oldest.silentFrom < silenceMs;
  }

  /**
   * Called for a connection that is not usable: asks for its database, or notes its silence. Writes
   * a probe, whose answer would end the silence, if the newest call may never be answered: the
   * client has failed the call, or a Cluster may repeat it.
   */
  suspect(slot: number, key: string, silenceMs: number): void {
    if (this.client.status !== "ready") return;
    if (this.answers(slot, silenceMs)) {
      this.database.ask(this.#watcher);
      return;
    }
    this.silentAt = performance.now();
    const node = this.client.nodeOf(slot);
    const newest = this.#unanswered.get(node)?.at(-1);
    if ((!this.client.isCluster || newest?.tell === ofProbe) && newest?.isGivenUp === false) return;
    const probe = async () => this.client.eval("return 1", { keys: [key], args: [] });
    this.follow(node, probe(), performance.now(), ofProbe);
  }

  /** @param tell called at most once. @param server the node itself if no key is declared. */
  send(
    node: string,
    script: string,
    call: ScriptCall,
    tell: (result: CallResult) => void,
    server: ServerPort = this.client,
  ): void {
    const sentAt = performance.now();
    const digest = this.#needsTexts ? undefined : this.#digests.get(node)?.get(script);
    let answer: Promise<unknown>;
    try {
      answer = Promise.resolve(server.eval(script, call, digest));
    } catch (error) {
      answer = Promise.reject(error);
    }
    this.follow(node, answer, sentAt, tell, script, digest);
  }

  #loaded(node: string, script: string): void {
    const digests = this.#digests.get(node) ?? new Map<string, string>();
    if (digests.has(script)) return;
    digests.set(script, createHash("sha1").update(script).digest("hex"));
    this.#digests.set(node, digests);
  }

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

  follow(
    node: string,
    answer: Promise<unknown>,
    silentFrom: number,
    tell: (result: CallResult) => void,
    script?: string,
    digest?: string,
  ): void {
    const call: Call = { node, silentFrom, isGivenUp: false, tell, script, digest };
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
    const { digest, node, script, tell } = call;
    call.tell = undefined;
    call.isGivenUp = result.kind === "error";
    // Rule 9: an error of the client itself, such as a time-out, is not a sign of life.
    if (result.kind === "value" || isServerError(result.error)) {
      // A server answers in order, so this answer also ends the silence of all calls before it.
      const calls = this.#unanswered.get(node);
      const answered = calls?.splice(0, calls.indexOf(call) + 1) ?? [];
      this.inFlight -= answered.length;
      this.mayBeDemoted = false;
      if (result.kind === "error") this.refused(result.error);
      for (const each of answered) if (each.tell !== undefined) this.#repeated.add(each);
    }
    this.#repeated.delete(call);
    if (tell === undefined) return;
    let isNotLoaded = false;
    if (script !== undefined && digest === undefined) {
      if (result.kind === "value") this.#loaded(node, script);
    } else if (script !== undefined && result.kind === "error") {
      isNotLoaded = this.#isNotLoaded(node, script, result.error);
    }
    tell(isNotLoaded ? { kind: "not-loaded" } : result);
  }

  /** @param error of a call, or of one of its entries. */
  refused(error: unknown): void {
    this.mayBeDemoted ||= isOfReplica(error) || (!this.client.isCluster && lacksReplicas(error));
  }

  readonly #readied = (): void => {
    this.everReady = true;
    this.#digests.clear();
    this.#needsTexts = false;
    this.silentAt = Number.NEGATIVE_INFINITY;
    this.mayBeDemoted = false;
    this.database.ask(this.#watcher);
    if (this.database.isCertain) this.#watcher?.ready();
  };

  /** Rule 2: ends all calls. If the client repeats one, its reply hides how the first one ended. */
  readonly #closed = (): void => {
    const calls = [...[...this.#unanswered.values()].flat(), ...this.#repeated];
    this.#unanswered.clear();
    this.#repeated.clear();
    this.inFlight = 0;
    this.database.forget();
    for (const call of calls) {
      call.tell?.({ kind: "closed" });
      call.tell = undefined;
    }
  };
}
