import type { AnyCluster, AnyRedis } from "./clients.ts";
import { byText } from "./script-texts.ts";

/** One script call, with its text in any case. */
export interface ScriptCall {
  readonly argv: string[];
  readonly reply: Promise<unknown>;
}

/** The script calls that are made of a client from now on. */
export function scriptCallsOf(client: AnyRedis | AnyCluster): readonly ScriptCall[] {
  const calls: ScriptCall[] = [];
  for (const name of ["eval", "evalsha"] as const) {
    const send = client[name].bind(client) as (...args: unknown[]) => Promise<unknown>;
    Reflect.set(client, name, (...args: unknown[]) => {
      const reply = send(...args);
      calls.push({ argv: byText([name, ...args.map(String)]), reply });
      return reply;
    });
  }
  return calls;
}
