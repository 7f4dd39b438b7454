import {
  acquireOnceScript,
  acquireScript,
  lookUpScript,
} from "../../../src/stores/redis/commands/acquire.ts";
import { gatheredForm } from "../../../src/stores/redis/commands/command.ts";
import { completeScript, recordScript } from "../../../src/stores/redis/commands/complete.ts";
import {
  forgetScript,
  freeScript,
  inspectScript,
} from "../../../src/stores/redis/commands/on-call.ts";
import {
  extendScript,
  releaseScript,
  tellScript,
} from "../../../src/stores/redis/commands/release.ts";
import { takeBack, writeTogether } from "../../../src/stores/redis/gathering.ts";
import { touchScript } from "../../../src/stores/redis/replicas.ts";
import { sha1hex } from "./server/script-runner.ts";

/** The scripts of the store, and how their arguments lie: how many are everybody's, and what each entry has. */
const layouts = {
  acquire: { script: acquireScript, head: 6, keys: ["lock"], args: ["ownerId"] },
  acquireOnce: {
    script: acquireOnceScript,
    head: 6,
    keys: ["lock", "record"],
    args: ["ownerId", "id", "fingerprint"],
  },
  lookUp: {
    script: lookUpScript,
    head: 6,
    keys: ["lock", "record", "told"],
    args: ["ownerId", "id", "fingerprint", "run"],
  },
  extend: { script: extendScript, head: 1, keys: ["lock"], args: ["ownerId"] },
  release: { script: releaseScript, head: 0, keys: ["lock"], args: ["ownerId", "cooldownUntilMs"] },
  tell: {
    script: tellScript,
    head: 0,
    keys: ["lock", "told"],
    args: ["ownerId", "cooldownUntilMs", "text", "lifeMs"],
  },
  complete: {
    script: completeScript,
    head: 0,
    keys: ["lock", "record"],
    args: ["ownerId", "text", "expiresAtMs", "cooldownUntilMs"],
  },
  record: {
    script: recordScript,
    head: 0,
    keys: ["record"],
    args: ["ownerId", "text", "expiresAtMs"],
  },
  inspect: { script: inspectScript, head: 0, keys: ["lock"], args: [] },
  free: { script: freeScript, head: 0, keys: ["lock"], args: ["freeId"] },
  forget: { script: forgetScript, head: 0, keys: ["lock", "record"], args: ["id", "ownerId"] },
  touch: { script: touchScript, head: 0, keys: ["lock"], args: ["ownerId"] },
  // Ask whether a call may have the keys of many locks.
  shared: { script: writeTogether, head: 1, keys: ["lock"], args: [] },
  back: { script: takeBack, head: 0, keys: ["lock"], args: [] },
  // Asks whether the server still answers.
  probe: { script: "return 1", head: 0, keys: ["lock"], args: [] },
};

export type ScriptName = keyof typeof layouts;

const names = new Map<string, ScriptName>();
const gathered = new Set<string>();
const digests = new Map<string, string>();
for (const [name, { script }] of Object.entries(layouts)) {
  gathered.add(gatheredForm(script));
  for (const form of [script, gatheredForm(script)]) {
    names.set(form, name as ScriptName);
    digests.set(sha1hex(form), form);
  }
}

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

/** One entry of a call: what of it the script is told, and what it has said. */
export interface CallEntry {
  readonly lock: string | undefined;
  readonly record: string | undefined;
  /** Of a look-up and a tell: where a run has told its answer. */
  readonly told?: string | undefined;
  readonly ownerId: string | undefined;
  /** Of a complete: the text of the record, and the server's times. */
  readonly text?: string;
  readonly expiresAtMs?: number;
  readonly cooldownUntilMs?: number;
  /** Of a free: whom it is about. */
  readonly freeId?: string;
}

/** What a call asks for, entry by entry. */
export function entriesOf(
  name: ScriptName,
  keys: readonly string[],
  args: readonly (string | number | Uint8Array)[],
): CallEntry[] {
  const { head, keys: keyNames, args: argNames } = layouts[name];
  return Array.from({ length: keys.length / keyNames.length }, (_, entry) => {
    const found: Record<string, string | number | Uint8Array | undefined> = {};
    for (const [at, what] of keyNames.entries()) found[what] = keys[entry * keyNames.length + at];
    for (const [at, what] of argNames.entries()) {
      found[what] = args[head + entry * argNames.length + at];
    }
    return found as unknown as CallEntry;
  });
}

/** What a script has said of each entry; nothing where the whole call failed. */
export function codesOf(name: ScriptName, reply: unknown): readonly unknown[] {
  if (!Array.isArray(reply) || name === "probe") return [];
  return reply.slice(isAcquire(name) ? 2 : 1);
}

/** Whether it may take a lock. */
export function isAcquire(name: ScriptName | undefined): boolean {
  return name === "acquire" || name === "acquireOnce" || name === "lookUp";
}

/** The codes of an acquire that mean "yes". */
export function isGrant(code: unknown): boolean {
  return typeof code === "number" && (code === -1 || code <= -1e15);
}
