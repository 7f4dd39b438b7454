import type { AnyCluster, AnyRedis } from "./clients.ts";
import { byText } from "./script-texts.ts";

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
