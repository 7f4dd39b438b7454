import { acquireOnceScript, acquireScript } from "../../../src/stores/redis/commands/acquire.ts";
import { gatheredForm } from "../../../src/stores/redis/commands/command.ts";
import { completeScript, recordScript } from "../../../src/stores/redis/commands/complete.ts";
import { freeScript, inspectScript } from "../../../src/stores/redis/commands/on-call.ts";
import { extendScript, releaseScript } from "../../../src/stores/redis/commands/release.ts";
import { touchScript } from "../../../src/stores/redis/commands/touch.ts";
import { sha1hex } from "./server/script-runner.ts";

/** Which script it is; a probe asks whether the server still answers. */
export type ScriptName =
  | "acquire"
  | "acquireOnce"
  | "extend"
  | "release"
  | "complete"
  | "record"
  | "inspect"
  | "free"
  | "touch"
  | "probe";

const probe = "return 1";

const declaring: readonly (readonly [string, ScriptName])[] = [
  [acquireScript, "acquire"],
  [acquireOnceScript, "acquireOnce"],
  [extendScript, "extend"],
  [releaseScript, "release"],
  [completeScript, "complete"],
  [recordScript, "record"],
  [inspectScript, "inspect"],
  [freeScript, "free"],
  [touchScript, "touch"],
];

const gathered: ReadonlySet<string> = new Set(declaring.map(([script]) => gatheredForm(script)));

const names: ReadonlyMap<string, ScriptName> = new Map([
  ...declaring,
  ...declaring.map(([script, name]) => [gatheredForm(script), name] as const),
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

/** Whether its keys are the last of its arguments, and their number behind them. */
export function isGathered(script: string): boolean {
  return gathered.has(script);
}

export function nameOf(script: string): ScriptName {
  return names.get(script) ?? "probe";
}
