import type { LockTimes } from "../../../../src/lock/store.ts";

/** What the value of a lock's key says. */
export type LockValue =
  | {
      readonly kind: "lock";
      readonly ownerId: string;
      readonly fencingToken: number;
      readonly submission: string;
      readonly fingerprint: string;
    }
  | { readonly kind: "cooldown"; readonly ownerId: string }
  | { readonly kind: "freed"; readonly ownerId: string }
  /** Somebody else's. */
  | { readonly kind: "other" };

const lock =
  /^([0-9a-f]{8}(?:-[0-9a-f]{4}){3}-[0-9a-f]{12}):(\d{16}):\d+:\d+:[^:]*:([\w-]{22}|):([\w-]{22}|)$/;
const cooldown = /^cooldown:([0-9a-f-]{36})$/;
const freed = /^freed:([0-9a-f-]{36}):[^:]+:\d{16}:[^:]+(:foreign)?$/;

export function lockValue(value: unknown): LockValue {
  const [, ownerId, token, submission = "", fingerprint = ""] = lock.exec(String(value)) ?? [];
  if (ownerId !== undefined) {
    return { kind: "lock", ownerId, fencingToken: Number(token), submission, fingerprint };
  }
  const [, cooled] = cooldown.exec(String(value)) ?? [];
  if (cooled !== undefined) return { kind: "cooldown", ownerId: cooled };
  const [, taken] = freed.exec(String(value)) ?? [];
  return taken === undefined ? { kind: "other" } : { kind: "freed", ownerId: taken };
}

/** How long a key may live whose value says this, by the server's clock: another lock's, as it likes. */
export function longestLifeMs({ kind }: LockValue, { ttlMs }: LockTimes): number {
  return { lock: ttlMs, cooldown: 60_000, freed: 300_000, other: Number.POSITIVE_INFINITY }[kind];
}

/** Whose key it is, as `Owners` knows everybody. */
export function ownerIdOf(value: unknown): string {
  const parsed = lockValue(value);
  return parsed.kind === "lock" ? parsed.ownerId : String(value);
}

const record = /^1([\w-]{22})([0-9a-f-]{36})\{/;

/** Whose answer a record is, and of what. */
export function recordValue(
  value: string,
): { readonly fingerprint: string; readonly ownerId: string } | undefined {
  const [, fingerprint, ownerId] = record.exec(value) ?? [];
  return fingerprint === undefined || ownerId === undefined ? undefined : { fingerprint, ownerId };
}

/** A record lies beside its lock, in the slot of the Cluster that the braces name. */
export function isRecordKey(key: string): boolean {
  return key.startsWith("{");
}
