import { createHash } from "node:crypto";
import type { LockTimes } from "../../../../src/lock/store.ts";
import type { SimulatedRedis } from "../server/simulated-redis.ts";
import { lockValue } from "../server/values.ts";
import type { Execution } from "./executions.ts";
import type { Owners, Tenure } from "./owners.ts";
import type { Verdict } from "./verdict.ts";

/** Whether a person's id names what a key holds. */
export function isNamed(value: string, id: string | undefined): boolean {
  const parsed = lockValue(value);
  const named =
    parsed.kind === "other" ? createHash("sha1").update(value).digest("hex") : parsed.ownerId;
  return id !== undefined && id.length >= 8 && named.startsWith(id);
}

/** Rule 19: a tombstone takes the place of the lease that was meant, and changes no expiry. */
export class TombstoneWatch {
  readonly #owners: Owners;
  readonly #verdict: Verdict;
  readonly #times: LockTimes;
  readonly #server: () => SimulatedRedis;

  constructor(owners: Owners, verdict: Verdict, times: LockTimes, server: () => SimulatedRedis) {
    this.#owners = owners;
    this.#verdict = verdict;
    this.#times = times;
    this.#server = server;
  }

  /** @param replaced what was there until now. */
  set(
    ownerId: string,
    expiresAt: number | undefined,
    replaced: Tenure | undefined,
    execution: Execution,
  ): void {
    const owner = this.#owners.get(ownerId);
    const broken = (what: string) =>
      this.#verdict.broken("freed", `the tombstone of ${owner?.name} ${what}`);
    const id = execution.entries[0]?.freeId;
    if (execution.name !== "free") broken(`was set by a ${execution.name}`);
    if (replaced === undefined || replaced.owner !== owner) {
      broken(`takes the place of ${replaced?.owner.name}`);
    }
    if (id === undefined || !ownerId.startsWith(id)) broken(`was set, and ${id} was meant`);
    if (expiresAt === undefined || expiresAt !== replaced?.livesUntil) {
      broken(`ends at ${expiresAt}, and the lease at ${replaced?.livesUntil}`);
    } else if (expiresAt - this.#server().nowMs > this.#times.ttlMs) {
      broken(`ends at ${expiresAt}`);
    }
    if (owner !== undefined) owner.wasFreed = true;
  }

  /** What a script says of a tombstone: its own is called freed, and no other. */
  checkCode(name: string, ownerId: string | undefined, value: unknown, code: unknown): void {
    if (!["extend", "release"].includes(name) || typeof code !== "number") return;
    const parsed = lockValue(value);
    const isOwn = parsed.kind === "freed" && parsed.ownerId === ownerId;
    if (isOwn === (code === -2)) return;
    const owner = this.#owners.get(ownerId ?? "");
    this.#verdict.broken("freed", `the ${name} of ${owner?.name} was told ${code} by ${value}`);
  }
}
