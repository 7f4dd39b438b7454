import type { LockCommand, NoAnswer } from "../../lock/store.ts";
import { nextTick, performance, setImmediate } from "../../time.ts";
import { inNeutralContext } from "../../timers.ts";
import { isError, ownError } from "../../validation.ts";
import { type ClientPort, plainError } from "./clients/port.ts";
import { common, endOfEntries, maxEntries, sent } from "./commands/command.ts";
import type { CallResult } from "./connection.ts";
import { ConnectionPair } from "./connection-pair.ts";
import { isOfReplica, misconfiguration, toNoAnswer } from "./redis-errors.ts";

/**
 * Rule 21: checks that each owner id's lock or record is there, and writes one key's expiry again.
 * Replicas apply writes in order: one that has this write has all locks and records before it.
 *
 * KEYS: the lock or the record of each entry.
 * ARGV: the owner id of each entry.
 *
 * Returns the clock, then for each entry:
 *   1 the lock or record is there, also on each replica that has the last write of this script
 *   0 something else is there, or nothing, or (before the write) a key without an expiry
 */
export const touchScript: string = sent(/* lua */ `
${common}
local replies = { now }
local wrote = false
for i, key in ipairs(KEYS) do
  local owner_id = ARGV[i]
  local reply = 0
  local held = redis.pcall('GET', key)
  if failed(held) then
    if not odd(held) then
      reply = held
    end
  -- A lock begins with its owner id, and a record has it behind its fingerprint.
  elseif held and (string.sub(held, 1, 36) == owner_id or string.sub(held, 24, 59) == owner_id) then
    reply = 1
    if not wrote then
      reply = redis.pcall('PTTL', key)
      if reply == -1 then
        reply = 0
      elseif not failed(reply) then
        -- Needs no memory, so a full Redis takes it. 0 would delete the key.
        reply = redis.pcall('PEXPIRE', key, math.max(reply, 1))
        wrote = not failed(reply)
      end
    end
  end
${endOfEntries(1)}`);

interface Touch {
  readonly key: string;
  readonly command: LockCommand;
  /** @param failure `undefined` where enough replicas have the lock or record. */
  readonly acknowledged: (failure: Error | undefined) => void;
}

class Node {
  gathered: Touch[] = [];
  isToFlush = false;
  /** When the newest round must be answered, by the monotonic clock; −∞ once it is. */
  overdueAt = Number.NEGATIVE_INFINITY;
  rounds = 0;
}

/** How long no acquire is sent after Redis has denied us `WAIT`. */
const refusedMs = 1_000;

/** How long a `WAIT` may outlast its time-out, which an idle server checks ten times a second. */
const overdueMs = 100;

/**
 * Rule 21: waits until replicas have locks and records. A round for a node is one pipeline: touches
 * (`touchScript`), then `WAIT`, on a pair of its own, because `WAIT` blocks a connection. Touches
 * that gather during a round share the next one, which does not wait for an overdue round.
 */
export class ReplicaWait {
  static readonly #shared = new WeakMap<ClientPort, Map<number, ReplicaWait>>();
  readonly #client: ClientPort;
  readonly #replicas: number;
  readonly #nodes = new Map<string, Node>();
  readonly #users = new Set<object>();
  #own: ClientPort | undefined;
  #endWatch: () => void = () => {};
  #detach: () => void = () => {};
  #failure: Error | undefined;
  #refusal: NoAnswer | undefined;
  #refusedAt = Number.NEGATIVE_INFINITY;

  static of(client: ClientPort, replicas: number): ReplicaWait {
    const ofClient = ReplicaWait.#shared.get(client) ?? new Map<number, ReplicaWait>();
    const wait = ofClient.get(replicas) ?? new ReplicaWait(client, replicas);
    ReplicaWait.#shared.set(client, ofClient.set(replicas, wait));
    return wait;
  }

  private constructor(client: ClientPort, replicas: number) {
    this.#client = client;
    this.#replicas = replicas;
  }

  /** @returns a function that ends this use; the last end closes the connections. */
  attach(): () => void {
    const user = {};
    this.#users.add(user);
    if (this.#users.size === 1) {
      this.#endWatch = this.#client.watch({ up: () => this.#pairIfAny(), ended: this.#close });
      // Open no connection as long as the application has not connected its own client.
      if (this.#client.status !== "wait") this.#pair();
    }
    return () => {
      if (!this.#users.delete(user) || this.#users.size > 0) return;
      this.#endWatch();
      this.#close();
    };
  }

  refusal(): NoAnswer | undefined {
    return performance.now() - this.#refusedAt < refusedMs ? this.#refusal : undefined;
  }

  /** Calls `acknowledged` at most once; not while a reply is missing on an open connection. */
  acknowledge(key: string, command: LockCommand, acknowledged: Touch["acknowledged"]): void {
    const name = this.#client.nodeOf(ConnectionPair.of(this.#client).slotOf(key));
    const node = this.#nodes.get(name) ?? new Node();
    this.#nodes.set(name, node);
    node.gathered.push({ key, command, acknowledged });
    this.#flushSoon(node);
  }

  #flushSoon(node: Node): void {
    // Wait for a round unless it is overdue: the next one may have a connection that answers.
    if (node.isToFlush || performance.now() < node.overdueAt) return;
    node.isToFlush = true;
    // While calls are in flight, flush after this turn: further replies may add touches until then.
    const isBusy = ConnectionPair.of(this.#client).inFlight > 0;
    inNeutralContext(isBusy ? setImmediate : nextTick, () => this.#flush(node));
  }

  #flush(node: Node): void {
    node.isToFlush = false;
    const touches = node.gathered;
    node.gathered = [];
    const round = ++node.rounds;
    let leastMs = Number.POSITIVE_INFINITY;
    for (const { command } of touches) leastMs = Math.min(leastMs, command.times.commandTimeoutMs);
    // Half of commandTimeoutMs, so that the answer usually comes before the lock asks again. `WAIT`
    // for 0 ms would never end.
    const waitMs = Math.max(1, Math.floor(leastMs / 2));
    const dueAt = performance.now() + waitMs + overdueMs;
    node.overdueAt = dueAt;
    this.#write(touches, waitMs, dueAt, () => {
      if (node.rounds !== round) return;
      node.overdueAt = Number.NEGATIVE_INFINITY;
      if (node.gathered.length > 0) this.#flushSoon(node);
    });
  }

  #write(touches: readonly Touch[], waitMs: number, dueAt: number, ended: () => void): void {
    const [{ command, key }] = touches as [Touch];
    const pair = this.#pairIfAny();
    const slot = pair?.slotOf(key) ?? 0;
    const connection = pair?.pick(slot, key, command.times.commandTimeoutMs);
    if (pair === undefined || connection === undefined) {
      const cause = new Error("cannot wait for replicas (ackReplicas): no connection is usable", {
        cause: this.#failure,
      });
      for (const { acknowledged } of touches) acknowledged(cause);
      ended();
      return;
    }
    // Off a Cluster, touches share calls only if rule 24 permits that for the lock of each touch.
    const mayShare = ({ command }: Touch) => connection.gathering.mayShare(command);
    const isGathered = touches.length === 1 || pair.isCluster || touches.every(mayShare);
    const calls = callsOf(touches, pair, isGathered ? maxEntries : 1);
    const scriptCalls = calls.map((call) => ({
      keys: call.map((touch) => touch.key),
      args: call.map((touch) => touch.command.ownerId),
    }));
    // Send the script's text: with an unknown digest, `WAIT` would be executed without a touch.
    const wait = ["wait", this.#replicas, waitMs];
    const answer = connection.client.together(slot, touchScript, scriptCalls, wait);
    connection.follow(connection.client.nodeOf(slot), answer, dueAt, (result) => {
      if (result.kind === "value") connection.mayBeDemoted = (result.value as []).some(isOfReplica);
      this.#answered(calls, result, waitMs);
      ended();
    });
  }

  #answered(calls: readonly (readonly Touch[])[], result: CallResult, waitMs: number): void {
    const replies = result.kind === "value" ? (result.value as unknown[]) : [];
    let failure = result.kind === "value" ? this.#shortage(replies.at(-1), waitMs) : undefined;
    // A round has the text of its script, so it is never `not-loaded`.
    if (result.kind !== "value" && result.kind !== "not-loaded") {
      const none = toNoAnswer(result);
      failure = none.cause ?? new Error("reason" in none ? none.reason : none.kind);
    }
    for (const [index, call] of calls.entries()) {
      const reply = replies[index];
      for (const [entry, { acknowledged }] of call.entries()) {
        acknowledged(isError(reply) ? reply : (failure ?? missing(reply, entry)));
      }
    }
  }

  #shortage(waited: unknown, waitMs: number): Error | undefined {
    if (isError(waited)) {
      if (misconfiguration(waited) !== undefined) {
        const advice = "Redis does not permit WAIT, which ackReplicas needs";
        this.#refusal = { kind: "rejected", cause: waited, misconfigured: true, advice };
        this.#refusedAt = performance.now();
      }
      return waited;
    }
    const replicas = this.#replicas;
    const came = Number(waited);
    if (came >= replicas) return undefined;
    const wanted = replicas === 1 ? "1 replica was" : `${replicas} replicas were`;
    return ownError(`${wanted} to acknowledge within ${waitMs} ms (ackReplicas), ${came} did`);
  }

  /** Opens the pair for touches; `undefined` where no lock uses it, or the client has ended. */
  #pair(): ConnectionPair | undefined {
    if (this.#users.size === 0 || this.#client.status === "end") return undefined;
    // Replace our own client if it has ended, or the application has selected another database.
    // A client with Sentinels may end while it looks for the master.
    const own = this.#own;
    if (own && (own.status === "end" || own.database !== this.#client.database)) this.#close();
    this.#own ??= inNeutralContext(() => {
      const opened = this.#client.second();
      opened.ignoreErrors();
      this.#detach = ConnectionPair.of(opened).attach(() => {});
      return opened;
    });
    return ConnectionPair.of(this.#own);
  }

  /** Calls `#pair`, never throws: an error of `duplicate()` in a timer would end the process. */
  #pairIfAny(): ConnectionPair | undefined {
    try {
      return this.#pair();
    } catch (error) {
      this.#failure = plainError(error);
      return undefined;
    }
  }

  readonly #close = (): void => {
    this.#detach();
    this.#detach = () => {};
    this.#own?.close();
    this.#own = undefined;
  };
}

function callsOf(touches: readonly Touch[], pair: ConnectionPair, most: number): Touch[][] {
  const open = new Map<number, Touch[]>();
  const calls: Touch[][] = [];
  for (const touch of touches) {
    const slot = pair.slotOf(touch.key);
    let call = open.get(slot);
    if (call === undefined || call.length === most) {
      call = [];
      open.set(slot, call);
      calls.push(call);
    }
    call.push(touch);
  }
  return calls;
}

function missing(reply: unknown, entry: number): Error | undefined {
  if (Array.isArray(reply) && Number(reply[1 + entry]) === 1) return undefined;
  return ownError("the lock or record was gone or changed before enough replicas acknowledged it");
}
