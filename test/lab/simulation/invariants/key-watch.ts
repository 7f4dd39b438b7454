import { createHash } from "node:crypto";
import type { WrittenCopy } from "../network/surroundings.ts";
import { isAcquire } from "../scripts.ts";
import type { KeyWatcher } from "../server/simulated-redis.ts";
import type { Execution } from "./answer-checks.ts";
import { slackMs, Watch } from "./invariants.ts";
import {
  isRecordKey,
  type LockValue,
  lockValue,
  longestLifeMs,
  type Owner,
  ownerIdOf,
  type Tenure,
} from "./owners.ts";

/** Watches every change of every key. */
export class KeyWatch extends Watch implements KeyWatcher {
  set(key: string, value: string, expiresAt: number | undefined): void {
    const { current } = this.world.executions;
    if (isRecordKey(key)) {
      this.world.note(() => `Redis      ${key} = ${value}`);
      current?.touched.set(key, value);
      this.world.recordWatch.set(key, value, expiresAt);
      return;
    }
    const parsed = lockValue(value);
    const owner = this.world.owners.of(ownerIdOf(value), key);
    this.world.note(() => `Redis      ${key} = ${owner.name}`);
    owner.serverLife ??= this.world.server.life;
    const tenures = this.world.owners.tenures(key);
    const replaced = this.world.owners.current(key);
    this.#end(key);
    let isExcused = false;
    if (current !== undefined) {
      if (parsed.kind === "lock") isExcused = this.#taken(key, parsed, owner, current.copy);
      else if (parsed.kind === "cooldown") this.#cooled(key, parsed.ownerId, expiresAt, replaced);
      else if (parsed.kind === "freed") {
        this.#freed(parsed.ownerId, expiresAt, replaced, current);
      } else this.world.broken("grammar", `${key} = ${value}`);
      current.touched.set(key, owner.id);
    }
    const from = this.world.loop.now;
    tenures.push({ owner, value: parsed, from, to: undefined, livesUntil: expiresAt, isExcused });
  }

  lengthened(key: string, _value: string, expiresAt: number): void {
    if (isRecordKey(key)) {
      this.world.recordWatch.lengthened(key, expiresAt);
      return;
    }
    const tenure = this.world.owners.current(key);
    if (tenure === undefined) return;
    const { owner } = tenure;
    const { nowMs } = this.world.server;
    const { maxHoldMs } = this.world.schedule.times;
    const { name, entries } = this.world.executions.current ?? {};
    const isOwn = entries?.some((each) => each.ownerId === owner.id);
    if (name === "extend") owner.securedUntil = undefined;
    // A touch, and the first write of a free, which needs no memory, change nothing; the least that is
    // not a deletion is 1 ms.
    const isUnchanged = expiresAt === Math.max(Number(tenure.livesUntil), nowMs + 1);
    // Rule 18: a clock that was set back has made it too long, and it has its own time from now on.
    const mostMs = longestLifeMs(tenure.value, this.world.schedule.times);
    const isCut = expiresAt < Number(tenure.livesUntil) && expiresAt === nowMs + mostMs;
    let what: string;
    if (name === "extend" && isOwn) what = "lengthened";
    else if ((name === "free" || (name === "touch" && isOwn)) && isUnchanged) what = "touched";
    else if ((isAcquire(name) || name === "free") && isCut) what = `lives for ${mostMs} ms`;
    else if (owner.process === undefined && isAcquire(name)) {
      what = "is given an expiry";
      if (tenure.livesUntil !== undefined || expiresAt - nowMs !== maxHoldMs) {
        this.world.broken("lifetime", `${key} of an old lock was given another life`);
      }
    } else {
      this.world.broken("lifetime", `${key} of ${owner.name} was lengthened by another command`);
      return;
    }
    this.world.note(() => `Redis      ${key} of ${owner.name} ${what}`);
    tenure.livesUntil = expiresAt;
  }

  deleted(key: string, value: string): void {
    if (isRecordKey(key)) {
      this.world.recordWatch.deleted(key);
      return;
    }
    const owner = this.world.owners.of(ownerIdOf(value), key);
    this.world.note(() => `Redis      ${key} of ${owner.name} deleted`);
    const { current } = this.world.executions;
    current?.touched.set(key, owner.id);
    const isFree = current?.name === "free" && lockValue(value).kind !== "lock";
    const livesUntil = this.world.owners.current(key)?.livesUntil;
    if (current?.entries.some((each) => each.lock === key && each.ownerId === owner.id) === true) {
      owner.deletedAt.push(this.world.loop.now);
    } else if (!isFree || !isNamed(value, livesUntil, current?.entries[0]?.freeId)) {
      this.world.broken("ownKey", `${key} of ${owner.name} was deleted by somebody else's command`);
    }
    this.#end(key);
  }

  expired(key: string, value: string): void {
    if (isRecordKey(key)) {
      this.world.note(() => `Redis      ${key} expired`);
      this.world.recordWatch.expired(key);
      return;
    }
    this.world.note(
      () => `Redis      ${key} of ${this.world.owners.of(ownerIdOf(value), key).name} expired`,
    );
    this.#end(key);
  }

  /** A replica has taken over: some locks are gone, some are back, some expire earlier. */
  failedOver(): void {
    const { loop, owners, server } = this.world;
    for (const key of new Set([...owners.keys(), ...server.keys.names()])) {
      if (isRecordKey(key)) continue;
      const entry = server.keys.kept(key);
      const tenure = owners.current(key);
      const owner = entry && owners.of(ownerIdOf(entry.value), key);
      const stays = tenure !== undefined && tenure.owner === owner;
      if (!stays) this.#end(key);
      if (entry === undefined || owner === undefined) continue;
      const value = lockValue(entry.value);
      const livesUntil = entry.expiresAt;
      const holder = value.kind === "freed" ? owners.get(value.ownerId) : owner;
      const isShorter = !stays || tenure.livesUntil !== livesUntil;
      if (isShorter && holder !== undefined && livesUntil !== undefined) {
        holder.securedUntil = server.goneAt(livesUntil);
      }
      if (stays) tenure.livesUntil = livesUntil;
      else {
        const from = loop.now;
        const isExcused = true;
        owners.tenures(key).push({ owner, value, from, to: undefined, livesUntil, isExcused });
      }
    }
    this.world.recordWatch.failedOver();
  }

  /** The server lost its data. */
  lost(): void {
    for (const key of this.world.owners.keys()) this.#end(key);
  }

  /** @returns whether it was taken by a clock that nobody can be asked to wait for. */
  #taken(
    key: string,
    { fencingToken }: Extract<LockValue, { kind: "lock" }>,
    owner: Owner,
    copy: WrittenCopy,
  ): boolean {
    owner.tokens.push(fencingToken);
    this.world.fenceWatch.taken(key, owner, fencingToken, copy.sentAt);
    return this.#isLate(copy, owner.name);
  }

  /** Rule 19. */
  #cooled(
    key: string,
    ownerId: string,
    expiresAt: number | undefined,
    replaced: Tenure | undefined,
  ): void {
    const { copy, touched, entries } = this.world.executions.current ?? {};
    const owner = this.world.owners.get(ownerId);
    if (owner === undefined || copy === undefined) return;
    const broken = (what: string) =>
      this.world.broken("cooldown", `the cooldown of ${owner.name} ${what}`);
    if (replaced?.owner === owner) owner.deletedAt.push(this.world.loop.now);
    else if (touched?.get(key) !== ownerId) broken("was set without its lock");
    if (owner.cooldownAtMost === 0) broken("was set, and none was asked for");
    else if (Number(expiresAt) > owner.cooldownAtMost + this.world.server.setBackMs) {
      broken(`ends at ${expiresAt}, after ${owner.cooldownAtMost}`);
    }
    if (owner.toldAt !== undefined && copy.sentAt > owner.toldAt) broken("was set by a retire");
    const until = entries?.find((each) => each.ownerId === ownerId)?.cooldownUntilMs;
    const most = this.world.server.nowMs + 60_000;
    if (until === undefined || expiresAt !== Math.min(until, most)) {
      broken(`ends at ${expiresAt} and not at ${until}`);
    }
    owner.cooldownUntil ??= until;
    if (owner.cooldownUntil !== until) broken("was given another end");
  }

  /** Rule 19: a tombstone takes the place of the lease that was meant, and changes no expiry. */
  #freed(
    ownerId: string,
    expiresAt: number | undefined,
    replaced: Tenure | undefined,
    { name, entries }: Execution,
  ): void {
    const owner = this.world.owners.get(ownerId);
    const broken = (what: string) =>
      this.world.broken("freed", `the tombstone of ${owner?.name} ${what}`);
    const id = entries[0]?.freeId;
    if (name !== "free") broken(`was set by a ${name}`);
    if (replaced === undefined || replaced.owner !== owner) {
      broken(`takes the place of ${replaced?.owner.name}`);
    }
    if (id === undefined || !ownerId.startsWith(id)) broken(`was set, and ${id} was meant`);
    if (expiresAt === undefined || expiresAt !== replaced?.livesUntil) {
      broken(`ends at ${expiresAt}, and the lease at ${replaced?.livesUntil}`);
    } else if (expiresAt - this.world.server.nowMs > this.world.schedule.times.ttlMs) {
      broken(`ends at ${expiresAt}`);
    }
    if (owner !== undefined) owner.wasFreed = true;
  }

  /**
   * A copy refuses itself after its deadline, and long before it. The limits: a process that has
   * never had an answer, and whose clock is ahead by as much as its first copy was held; and a clock
   * of Redis that was set back.
   */
  #isLate({ sentAt, args }: WrittenCopy, name: string): boolean {
    const { acquireTimeoutMs } = this.world.schedule.times;
    const { nowMs, setBackMs } = this.world.server;
    const deadlineMs = Number(args[0]);
    const ageMs = this.world.loop.now - sentAt;
    const isSetBack = setBackMs > 0 && nowMs + setBackMs > deadlineMs;
    if (isSetBack || ageMs <= 2.02 * acquireTimeoutMs + slackMs) return isSetBack;
    const aheadMs = deadlineMs - nowMs + ageMs - acquireTimeoutMs;
    const isLimit =
      aheadMs > acquireTimeoutMs && Math.abs(ageMs - aheadMs) <= acquireTimeoutMs + slackMs;
    if (!isLimit) {
      const age = `${ageMs.toFixed(1)} ms after it was written`;
      this.world.broken("stale", `a copy of ${name} took effect ${age}`);
    }
    return true;
  }

  #end(key: string): void {
    const tenure = this.world.owners.current(key);
    if (tenure === undefined) return;
    tenure.to = this.world.loop.now;
    this.#checkOrphan(tenure, this.world.loop.now);
  }

  /**
   * Where Redis' clock was set back, a key that no retire could reach lives on until somebody asks
   * for its user, which is another invariant's. So it is judged for as long as it is retired.
   */
  #judgedUntil({ overAt, lostAt }: Owner, to: number): number {
    const { acquireTimeoutMs, ttlMs } = this.world.schedule.times;
    const retiredMs = 2 * acquireTimeoutMs + ttlMs;
    return this.world.server.setBackMs > 0
      ? Math.min(to, (lostAt ?? overAt ?? to) + retiredMs)
      : to;
  }

  /** A key whose attempt is over, for longer than it takes to delete it. */
  #checkOrphan({ owner, from, isExcused }: Tenure, to: number): void {
    const { process, overAt, key, name } = owner;
    if (process === undefined || overAt === undefined || process.lockIsGone) return;
    if (isExcused || owner.wasForbidden || process.machine.isDead) return;
    const since = Math.max(from, overAt);
    if (since >= to) return;
    // Rule 16: on a Cluster, a complete that is written again goes in two steps.
    const steps = this.world.schedule.isCluster && owner.recordUntil !== undefined ? 2 : 1;
    const roundTripMs = steps * 2 * process.longestLatencyMs;
    // A client that times commands out has to ask first whether the server is there again.
    const ticks = process.plan.commandTimeout ? 2 : 1;
    const bound = ticks * (50 * 1.01 + roundTripMs + slackMs);
    const healthyMs = process.health.longestHealthy(since, this.#judgedUntil(owner, to));
    if (healthyMs <= bound) return;
    this.world.broken(
      "orphan",
      `${key} held ${name} for ${(to - since).toFixed(1)} ms after it was over, ${healthyMs.toFixed(1)} ms of them without any trouble`,
    );
  }
}

/** Whether a person's id names what a key holds: of another program's value, and of its expiry. */
function isNamed(value: string, livesUntil: number | undefined, id: string | undefined): boolean {
  const parsed = lockValue(value);
  const text = livesUntil === undefined ? value : `${value}:${livesUntil}`;
  const named =
    parsed.kind === "other" ? createHash("sha1").update(text).digest("hex") : parsed.ownerId;
  return id !== undefined && id.length >= 8 && named.startsWith(id);
}
