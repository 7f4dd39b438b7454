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
  | "probe";

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
]);

export function nameOf(script: string): ScriptName {
  return names.get(script) ?? "probe";
}
