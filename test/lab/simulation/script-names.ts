import { acquireScript, extendScript, releaseScript } from "../../../src/stores/redis/scripts.ts";

const names: ReadonlyMap<string, ScriptName> = new Map([
  [acquireScript, "acquire"],
  [extendScript, "extend"],
  [releaseScript, "release"],
]);

/** Whatever is none of the three asks whether the server still answers. */
export type ScriptName = "acquire" | "extend" | "release" | "probe";

export function nameOf(script: string): ScriptName {
  return names.get(script) ?? "probe";
}
