import { createHash } from "node:crypto";
import * as acquire from "../../src/stores/redis/commands/acquire.ts";
import * as complete from "../../src/stores/redis/commands/complete.ts";
import * as onCall from "../../src/stores/redis/commands/on-call.ts";
import * as release from "../../src/stores/redis/commands/release.ts";

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
