import { performance } from "../../time.ts";
import type { ClientPort, ServerPort } from "./clients/port.ts";

/** Servers below 7.0 have no `REDIS_VERSION_NUM`, and so answer with an empty array. */
const question = "return {redis.REDIS_VERSION_NUM, redis.pcall('GET', ARGV[1])}";

const leastVersion = 0x07_00_00;

/** How long after a no a node is asked again, at first and at most; doubled each time. */
const askAgainMs = { first: 10_000, most: 600_000 };

/** For how long a slot goes alone, unless another node has it before. */
const aloneMs = 10_000;

interface Verdict {
  readonly connection: unknown;
  mayGather: boolean;
  askAt: number;
  pauseMs: number;
}

/** Rule 23: whether the calls to a node of a Cluster may have keys of all its slots. */
export class Gathering {
  readonly #client: ClientPort;
  /** The client puts it in front of declared keys alone. */
  readonly prefix: string;
  readonly #verdicts = new WeakMap<ServerPort, Verdict>();
  readonly #alone = new Map<number, { readonly name: string; readonly until: number }>();

  constructor(client: ClientPort) {
    this.#client = client;
    this.prefix = client.keyPrefix ?? "";
  }

  /** The master's own connection, if a call that declares no key may have keys of the slot now. */
  nodeFor(slot: number, name: string, key: string): ServerPort | undefined {
    const alone = this.#alone.get(slot);
    if (alone && (alone.name !== name || performance.now() >= alone.until))
      this.#alone.delete(slot);
    if (!this.#client.mayGather || this.#alone.has(slot)) return undefined;
    const node = this.#client.master(name);
    return node !== undefined && this.#saidYes(node, key) ? node : undefined;
  }

  /** The slot may be on the move. */
  refused(slot: number, name: string): void {
    this.#alone.set(slot, { name, until: performance.now() + aloneMs });
  }

  #saidYes(node: ServerPort, key: string): boolean {
    const { connection } = node;
    let verdict = this.#verdicts.get(node);
    if (verdict === undefined || verdict.connection !== connection) {
      verdict = { connection, mayGather: false, askAt: 0, pauseMs: askAgainMs.first };
      this.#verdicts.set(node, verdict);
    }
    const isToAsk = !verdict.mayGather && performance.now() >= verdict.askAt;
    if (isToAsk) void this.#ask(node, key, verdict);
    return verdict.mayGather;
  }

  async #ask(node: ServerPort, key: string, verdict: Verdict): Promise<void> {
    verdict.askAt = performance.now() + verdict.pauseMs;
    verdict.pauseMs = Math.min(2 * verdict.pauseMs, askAgainMs.most);
    const answer = await askNode(node, this.prefix + key);
    verdict.mayGather = answer === "yes";
    if (answer === "too old") verdict.askAt = Number.POSITIVE_INFINITY;
  }
}

/** Asks whether a node takes calls that declare no key. @param key of its slots; need not exist. */
export async function askNode(node: ServerPort, key: string): Promise<"yes" | "no" | "too old"> {
  try {
    const reply = await node.eval(question, [], [key]);
    const [version, value] = Array.isArray(reply) ? reply : [];
    if (!(Number(version) >= leastVersion)) return "too old";
    // `WRONGTYPE`: the key holds a list, say, but the node has let the script use it.
    const isRefused = value instanceof Error && !value.message.startsWith("WRONGTYPE");
    return isRefused ? "no" : "yes";
  } catch {
    return "no";
  }
}
