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
