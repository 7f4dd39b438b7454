import type { ScriptName } from "../script-names.ts";

/** One entry of a call: what of it the script is told, and what it has said. */
export interface CallEntry {
  readonly lock: string | undefined;
  readonly record: string | undefined;
  readonly ownerId: string | undefined;
  /** Of a complete: the text of the record, and the server's times. */
  readonly text?: string;
  readonly expiresAtMs?: number;
  readonly cooldownUntilMs?: number;
  /** Of a free: whom it is about. */
  readonly freeId?: string;
}

/** How the arguments lie: how many are everybody's, and what each entry has. */
const layouts: Record<
  ScriptName,
  { head: number; keys: readonly string[]; args: readonly string[] }
> = {
  acquire: { head: 6, keys: ["lock"], args: ["ownerId"] },
  acquireOnce: { head: 6, keys: ["lock", "record"], args: ["ownerId", "id", "fingerprint"] },
  extend: { head: 1, keys: ["lock"], args: ["ownerId"] },
  release: { head: 0, keys: ["lock"], args: ["ownerId", "cooldownUntilMs"] },
  complete: {
    head: 0,
    keys: ["lock", "record"],
    args: ["ownerId", "text", "expiresAtMs", "cooldownUntilMs"],
  },
  record: { head: 0, keys: ["record"], args: ["ownerId", "text", "expiresAtMs"] },
  inspect: { head: 0, keys: ["lock"], args: [] },
  free: { head: 0, keys: ["lock"], args: ["freeId"] },
  touch: { head: 0, keys: ["lock"], args: ["ownerId"] },
  probe: { head: 0, keys: ["lock"], args: [] },
};

/** What a call asks for, entry by entry. */
export function entriesOf(
  name: ScriptName,
  keys: readonly string[],
  args: readonly (string | number)[],
): CallEntry[] {
  const { head, keys: keyNames, args: argNames } = layouts[name];
  return Array.from({ length: keys.length / keyNames.length }, (_, entry) => {
    const found: Record<string, string | number | undefined> = {};
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
  return name === "acquire" || name === "acquireOnce";
}

/** The codes of an acquire that mean "yes". */
export function isGrant(code: unknown): boolean {
  return typeof code === "number" && (code === -1 || code <= -1e15);
}
