import { createHash } from "node:crypto";
import * as acquire from "../../src/stores/redis/commands/acquire.ts";
import * as complete from "../../src/stores/redis/commands/complete.ts";
import * as onCall from "../../src/stores/redis/commands/on-call.ts";
import * as release from "../../src/stores/redis/commands/release.ts";
import type { AnyCluster, AnyRedis } from "./clients.ts";

/** One script call, with its text in any case. */
export interface ScriptCall {
  readonly argv: string[];
  readonly reply: Promise<unknown>;
}

/** The script calls that are made from now on of a client, and of the nodes that a Cluster has. */
export function scriptCallsOf(client: AnyRedis | AnyCluster): readonly ScriptCall[] {
  const calls: ScriptCall[] = [];
  const nodes = "nodes" in client ? client.nodes("all") : [];
  if ("isOpen" in client) return sentCallsOf(client);
  for (const each of [client, ...nodes]) {
    for (const name of ["eval", "evalsha"] as const) {
      const send = each[name].bind(each) as (...args: unknown[]) => Promise<unknown>;
      Reflect.set(each, name, (...args: unknown[]) => {
        const reply = send(...args);
        calls.push({ argv: byText([name, ...args.map(String)]), reply });
        return reply;
      });
    }
  }
  return calls;
}

/** The same of node-redis: the calls of a Cluster go to the clients of its nodes. */
function sentCallsOf(client: object): readonly ScriptCall[] {
  const calls: ScriptCall[] = [];
  const { masters = [] } = client as { masters?: readonly { client?: object }[] };
  for (const each of [client, ...masters.flatMap(({ client: own }) => own ?? [])]) {
    const send = Reflect.get(each, "sendCommand").bind(each);
    Reflect.set(each, "sendCommand", (words: string[], ...options: unknown[]) => {
      const reply = send(words, ...options);
      if (/^eval/.test(words[0] ?? "")) calls.push({ argv: byText(words), reply });
      return reply;
    });
  }
  return calls;
}

const modules: readonly Record<string, unknown>[] = [acquire, complete, onCall, release];

/** By digest. */
const texts: ReadonlyMap<string, string> = new Map(
  modules
    .flatMap((module) => Object.values(module))
    .filter((value) => typeof value === "string")
    .map((text) => [createHash("sha1").update(text).digest("hex"), text]),
);

/**
 * The request, a script of ours by its text: whether it travels as that or as its digest makes no
 * difference to what it does.
 */
export function byText(argv: string[]): string[] {
  const [name, digest = "", ...rest] = argv;
  const text = name?.toLowerCase() === "evalsha" ? texts.get(digest) : undefined;
  return text === undefined ? argv : ["eval", text, ...rest];
}
