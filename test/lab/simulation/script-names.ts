import {
  acquireOnceScript,
  acquireScript,
  acquireStepScript,
} from "../../../src/stores/redis/scripts/acquire.ts";
import { completeScript } from "../../../src/stores/redis/scripts/complete.ts";
import { extendScript } from "../../../src/stores/redis/scripts/extend.ts";
import { freeScript } from "../../../src/stores/redis/scripts/free.ts";
import { inspectScript } from "../../../src/stores/redis/scripts/inspect.ts";
import { lookScript, recordScript } from "../../../src/stores/redis/scripts/record.ts";
import { cooldownScript, releaseScript } from "../../../src/stores/redis/scripts/release.ts";
import { touchScript } from "../../../src/stores/redis/scripts/touch.ts";
import { sha1hex } from "./server/script-runner.ts";

/** Which script it is; a probe asks whether the server still answers. */
export type ScriptName =
  | "acquire"
  | "acquireOnce"
  | "acquireStep"
  | "extend"
  | "release"
  | "cooldown"
  | "complete"
  | "look"
  | "record"
  | "inspect"
  | "free"
  | "touch"
  | "probe";

const probe = "return 1";

const names: ReadonlyMap<string, ScriptName> = new Map([
  [acquireScript, "acquire"],
  [acquireOnceScript, "acquireOnce"],
  [acquireStepScript, "acquireStep"],
  [extendScript, "extend"],
  [releaseScript, "release"],
  [cooldownScript, "cooldown"],
  [completeScript, "complete"],
  [lookScript, "look"],
  [recordScript, "record"],
  [inspectScript, "inspect"],
  [freeScript, "free"],
  [touchScript, "touch"],
]);

const digests: ReadonlyMap<string, string> = new Map(
  [...names.keys(), probe].map((script) => [sha1hex(script), script]),
);

/** @throws Error for a digest of none of them. */
export function scriptWith(digest: string): string {
  const script = digests.get(digest);
  if (script === undefined) throw new Error(`no script of submit-lock has the digest ${digest}`);
  return script;
}

export function nameOf(script: string): ScriptName {
  return names.get(script) ?? "probe";
}
