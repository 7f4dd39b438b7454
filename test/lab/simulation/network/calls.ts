import { isGathered } from "../script-names.ts";
import type { ScriptCall } from "./surroundings.ts";

/** What a `WAIT` waits for. */
export interface Wait {
  readonly replicas: number;
  readonly forMs: number;
}

export interface ServerReply {
  readonly error?: Error;
  readonly value?: unknown;
}

export function replyOf(execute: () => unknown): ServerReply {
  try {
    return { value: execute() };
  } catch (error) {
    if (!(error instanceof Error) || error.name !== "ReplyError") throw error;
    return { error };
  }
}

export type PipelineCommand = [name: string, ...args: (string | number)[]];

export interface Pipeline {
  exec(): Promise<[error: Error | null, value?: unknown][]>;
}

export async function settled(
  reply: Promise<unknown>,
): Promise<[error: Error | null, value?: unknown]> {
  try {
    return [null, await reply];
  } catch (error) {
    return [error as Error];
  }
}

export function scriptOf(
  script: string,
  keyCount: number,
  rest: readonly (string | number)[],
): ScriptCall {
  const [declared, args] = [rest.slice(0, keyCount).map(String), rest.slice(keyCount)];
  if (!isGathered(script)) return { script, keys: declared, declared, args };
  const count = Number(args.at(-1));
  return { script, keys: args.slice(-1 - count, -1).map(String), declared, args };
}
