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
  /** Somebody else's. */
  | { readonly kind: "other" };

const lock =
  /^([0-9a-f]{8}(?:-[0-9a-f]{4}){3}-[0-9a-f]{12}):(\d{16}):\d+:\d+:[^:]*:([\w-]{22}|):([\w-]{22}|)$/;
const cooldown = /^cooldown:([0-9a-f-]{36})$/;

export function lockValue(value: unknown): LockValue {
  const [, ownerId, token, submission = "", fingerprint = ""] = lock.exec(String(value)) ?? [];
  if (ownerId !== undefined) {
    return { kind: "lock", ownerId, fencingToken: Number(token), submission, fingerprint };
  }
  const [, cooled] = cooldown.exec(String(value)) ?? [];
  return cooled === undefined ? { kind: "other" } : { kind: "cooldown", ownerId: cooled };
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
