import { createHash } from "node:crypto";
import * as acquire from "../../src/stores/redis/scripts/acquire.ts";
import * as complete from "../../src/stores/redis/scripts/complete.ts";
import * as extend from "../../src/stores/redis/scripts/extend.ts";
import * as free from "../../src/stores/redis/scripts/free.ts";
import * as inspect from "../../src/stores/redis/scripts/inspect.ts";
import * as record from "../../src/stores/redis/scripts/record.ts";
import * as release from "../../src/stores/redis/scripts/release.ts";

const modules: readonly Record<string, string>[] = [
  acquire,
  complete,
  extend,
  free,
  inspect,
  record,
  release,
];

/** By digest. */
const texts: ReadonlyMap<string, string> = new Map(
  modules
    .flatMap((module) => Object.values(module))
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
