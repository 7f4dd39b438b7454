import { randomUUID } from "node:crypto";
import type { LockCommand, LockTimes } from "../../lock/store.ts";
import { performance } from "../../time.ts";
import { isError, warnOnce } from "../../validation.ts";
import type { ClientPort, ServerPort } from "./clients/port.ts";
import { isCrossSlot } from "./redis-errors.ts";

/** Servers below 7.0 have no `REDIS_VERSION_NUM`, and so answer with an empty array. */
const question = "return {redis.REDIS_VERSION_NUM, redis.pcall('GET', ARGV[1])}";

const leastVersion = 0x07_00_00;

/** The pause, in ms, before a node or address is asked again after a no: doubled each time. */
const askAgainMs = { first: 10_000, most: 600_000 };

/**
 * How long requests of a refused slot are not gathered, unless another node gets the slot earlier.
 */
const aloneMs = 10_000;

/** Rule 24: sets all keys in one call. They live for 5 s: a busy machine may read them late. */
export const writeTogether: string =
  "for _, key in ipairs(KEYS) do redis.call('SET', key, ARGV[1], 'PX', 5000) end";

export const takeBack: string =
  "local value = redis.call('GET', KEYS[1]) redis.call('DEL', KEYS[1]) return value";

/** By chance, 32 keys are all on the same one of two equal shards once in 2 ^ 31 times. */
const askedKeys = 32;

type Follow = (answer: Promise<unknown>) => void;

interface Verdict {
  readonly connection: unknown;
  isYes: boolean;
  askAt: number;
  pauseMs: number;
}

/** Rules 23 and 24: whether the calls of one connection may have the keys of many customers. */
export class Gathering {
  readonly #client: ClientPort;
  readonly #follow: Follow;
  /** The client adds its prefix to declared keys alone, so a gathered call must add the prefix. */
  readonly prefix: string;
  /** The verdicts: on a Cluster by node, else by lock: the key is the lock's `times` object. */
  readonly #verdicts = new WeakMap<ServerPort | LockTimes, Verdict>();
  readonly #alone = new Map<number, { readonly name: string; readonly until: number }>();

  /** @param follow awaits an answer. If that is missing for too long, the connection is silent. */
  constructor(client: ClientPort, follow: Follow) {
    this.#client = client;
    this.#follow = follow;
    this.prefix = client.keyPrefix ?? "";
  }

  /** The master's own connection, if a call that declares no key may have keys of the slot now. */
  nodeFor(slot: number, name: string, key: string): ServerPort | undefined {
    const alone = this.#alone.get(slot);
    if (alone && (alone.name !== name || performance.now() >= alone.until))
      this.#alone.delete(slot);
    if (!this.#client.mayGather || this.#alone.has(slot)) return undefined;
    const node = this.#client.master(name);
    if (node === undefined) return undefined;
    return this.#saidYes(node, node, () => askNode(node, this.prefix + key)) ? node : undefined;
  }

  /**
   * Rule 24, without a Cluster client: whether a call may have many customers' keys of this lock.
   */
  mayShare({ key, times }: LockCommand): boolean {
    return this.#saidYes(times, this.#client, () => askSharing(this.#client, key, this.#follow));
  }

  refusedTogether({ times }: LockCommand): void {
    const verdict = this.#verdictOf(times, this.#client);
    verdict.isYes = false;
    verdict.askAt = Number.POSITIVE_INFINITY;
  }

  /** The slot may be moving: its requests are calls of their own for a while. */
  refused(slot: number, name: string): void {
    this.#alone.set(slot, { name, until: performance.now() + aloneMs });
  }

  #verdictOf(of: ServerPort | LockTimes, { connection }: ServerPort): Verdict {
    const known = this.#verdicts.get(of);
    if (known !== undefined && known.connection === connection) return known;
    const verdict = { connection, isYes: false, askAt: 0, pauseMs: askAgainMs.first };
    this.#verdicts.set(of, verdict);
    return verdict;
  }

  #saidYes(
    of: ServerPort | LockTimes,
    server: ServerPort,
    ask: () => Promise<"yes" | "no" | "too old">,
  ): boolean {
    const verdict = this.#verdictOf(of, server);
    if (!verdict.isYes && performance.now() >= verdict.askAt) {
      verdict.askAt = performance.now() + verdict.pauseMs;
      verdict.pauseMs = Math.min(2 * verdict.pauseMs, askAgainMs.most);
      void ask().then((answer) => {
        // If a call of many customers was refused after the question, that verdict is final.
        if (verdict.askAt < Number.POSITIVE_INFINITY) verdict.isYes = answer === "yes";
        if (answer === "too old") verdict.askAt = Number.POSITIVE_INFINITY;
      });
    }
    return verdict.isYes;
  }
}

/** Asks whether a node takes calls that declare no key. @param key in a slot of the node. */
export async function askNode(node: ServerPort, key: string): Promise<"yes" | "no" | "too old"> {
  try {
    const reply = await node.eval(question, { keys: [], args: [key] });
    const [version, value] = Array.isArray(reply) ? reply : [];
    if (!(Number(version) >= leastVersion)) return "too old";
    // `WRONGTYPE`: the key holds a list, say, but the node has let the script use it.
    return isError(value) && !value.message.startsWith("WRONGTYPE") ? "no" : "yes";
  } catch {
    return "no";
  }
}

/**
 * Rule 24: behind a proxy that shards by the first key, a call with the keys of two customers would
 * take the second lock where no other call finds it: two holders. So one call writes many keys, and
 * a call for each takes it back. @param key the start of the keys, which live for 5 s at most.
 */
export async function askSharing(
  server: ServerPort,
  key: string,
  follow: Follow = () => {},
): Promise<"yes" | "no"> {
  const value = randomUUID();
  const keys = Array.from({ length: askedKeys }, (_, index) => `${key}:shared-${value}-${index}`);
  try {
    // Write all in one piece: a later write might meet a connection that has fallen silent.
    const asked = [
      server.eval(writeTogether, { keys, args: [value] }),
      ...keys.map((each) => server.eval(takeBack, { keys: [each], args: [] })),
    ];
    for (const each of asked) follow(each);
    const [, ...found] = await Promise.all(asked);
    if (found.every((each) => each === value)) return "yes";
    // A restart or 5 s of silence loses one key and all after it. Shards lose keys here and there.
    const firstLost = found.findIndex((each) => each !== value);
    if (!found.includes(value, firstLost)) return "no";
  } catch (error) {
    if (!isCrossSlot(error)) return "no";
  }
  warnOnce(
    "SUBMIT_LOCK_SHARDED_REDIS",
    `${server.address} keeps keys on more than one shard or is in cluster mode, and the client is not a Cluster client. Each lock is sent in a call of its own, which is slower. If the server is in cluster mode, use a Cluster client: this one cannot take locks whose keys are on other nodes.`,
  );
  return "no";
}
