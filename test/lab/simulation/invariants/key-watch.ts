import type { WrittenCopy } from "../network/surroundings.ts";
import type { Schedule } from "../schedule.ts";
import type { KeyWatcher } from "../server/keys.ts";
import { isAcquire } from "../server/script-call.ts";
import type { SimulatedRedis } from "../server/simulated-redis.ts";
import {
  isRecordKey,
  type LockValue,
  lockValue,
  longestLifeMs,
  ownerIdOf,
} from "../server/values.ts";
import type { EventLoop } from "../time/event-loop.ts";
import { Executions } from "./executions.ts";
import { FenceWatch } from "./fence-watch.ts";
import type { Owner, Owners, Tenure } from "./owners.ts";
import { RecordWatch } from "./record-watch.ts";
import { isNamed, TombstoneWatch } from "./tombstone-watch.ts";
import type { Verdict } from "./verdict.ts";

/** Rounding of clocks to milliseconds, timers that come late, a turn of the loop. */
export const slackMs = 4;

/** Watches every change of every key. */
export class KeyWatch implements KeyWatcher {
  readonly executions: Executions;
  readonly records: RecordWatch;
  readonly fence: FenceWatch;
  readonly tombstones: TombstoneWatch;
  readonly #loop: EventLoop;
  readonly #schedule: Schedule;
  readonly #owners: Owners;
  readonly #verdict: Verdict;
  readonly #note: (text: () => string) => void;
  readonly #server: () => SimulatedRedis;

  constructor(
    loop: EventLoop,
    schedule: Schedule,
    owners: Owners,
    verdict: Verdict,
    note: (text: () => string) => void,
    server: () => SimulatedRedis,
  ) {
    this.#loop = loop;
    this.#schedule = schedule;
    this.#owners = owners;
    this.#verdict = verdict;
    this.#note = note;
    this.#server = server;
    this.executions = new Executions({
      server,
      owners,
      verdict,
      records: () => this.records,
      tombstones: () => this.tombstones,
    });
    this.tombstones = new TombstoneWatch(owners, verdict, schedule.times, server);
    this.records = new RecordWatch(loop, owners, verdict, this.executions, server);
    this.fence = new FenceWatch(loop, verdict, server);
  }

  set(key: string, value: string, expiresAt: number | undefined): void {
    const { current } = this.executions;
    if (isRecordKey(key)) {
      this.#note(() => `Redis      ${key} = ${value}`);
      current?.touched.set(key, value);
      this.records.set(key, value, expiresAt);
      return;
    }
    const parsed = lockValue(value);
    const owner = this.#owners.of(ownerIdOf(value), key);
    this.#note(() => `Redis      ${key} = ${owner.name}`);
    owner.serverLife ??= this.#server().life;
    const tenures = this.#owners.tenures(key);
    const replaced = this.#owners.current(key);
    this.#end(key);
    let isByWrongClock = false;
    if (current !== undefined) {
      if (parsed.kind === "lock") isByWrongClock = this.#taken(key, parsed, owner, current.copy);
      else if (parsed.kind === "cooldown") this.#cooled(key, parsed.ownerId, expiresAt, replaced);
      else if (parsed.kind === "freed") {
        this.tombstones.set(parsed.ownerId, expiresAt, replaced, current);
      } else this.#verdict.broken("grammar", `${key} = ${value}`);
      current.touched.set(key, owner.id);
    }
    const from = this.#loop.now;
    const livesUntil = expiresAt;
    tenures.push({ owner, value: parsed, from, to: undefined, livesUntil, isByWrongClock });
  }

  lengthened(key: string, _value: string, expiresAt: number): void {
    if (isRecordKey(key)) {
      this.records.lengthened(key, expiresAt);
      return;
    }
    const tenure = this.#owners.current(key);
    if (tenure === undefined) return;
    const { owner } = tenure;
    const { name, entries } = this.executions.current ?? {};
    if (name === "extend") owner.securedUntil = undefined;
    if (name === "extend" && entries?.some((each) => each.ownerId === owner.id)) {
      this.#note(() => `Redis      ${key} of ${owner.name} lengthened`);
      tenure.livesUntil = expiresAt;
      return;
    }
    // A touch, and the first write of a free, which needs no memory; the least that is not a deletion
    // is 1 ms.
    const least = this.#server().nowMs + 1;
    const isOwnTouch = name === "touch" && entries?.some((each) => each.ownerId === owner.id);
    if (
      (name === "free" || isOwnTouch) &&
      expiresAt === Math.max(Number(tenure.livesUntil), least)
    ) {
      tenure.livesUntil = expiresAt;
      return;
    }
    // Rule 18: a clock that was set back has made it too long, and it has its own time from now on.
    const mostMs = longestLifeMs(tenure.value, this.#schedule.times);
    const isCut = expiresAt < Number(tenure.livesUntil) && expiresAt === least - 1 + mostMs;
    if ((isAcquire(name) || name === "free") && isCut) {
      this.#note(() => `Redis      ${key} of ${owner.name} lives for ${mostMs} ms and not longer`);
      tenure.livesUntil = expiresAt;
      return;
    }
    if (owner.participant === undefined && isAcquire(name)) {
      const { maxHoldMs } = this.#schedule.times;
      this.#note(() => `Redis      ${key} of ${owner.name} is given an expiry`);
      if (tenure.livesUntil !== undefined || expiresAt - this.#server().nowMs !== maxHoldMs) {
        this.#verdict.broken("lifetime", `${key} of an old lock was given another life`);
      }
      tenure.livesUntil = expiresAt;
      return;
    }
    this.#verdict.broken("lifetime", `${key} of ${owner.name} was lengthened by another command`);
  }

  deleted(key: string, value: string): void {
    if (isRecordKey(key)) {
      this.records.deleted(key);
      return;
    }
    const owner = this.#owners.of(ownerIdOf(value), key);
    this.#note(() => `Redis      ${key} of ${owner.name} deleted`);
    const { current } = this.executions;
    current?.touched.set(key, owner.id);
    const isFree = current?.name === "free" && lockValue(value).kind !== "lock";
    if (current?.entries.some((each) => each.lock === key && each.ownerId === owner.id) === true) {
      owner.deletedAt.push(this.#loop.now);
    } else if (!isFree || !isNamed(value, current?.entries[0]?.freeId)) {
      this.#verdict.broken(
        "ownKey",
        `${key} of ${owner.name} was deleted by somebody else's command`,
      );
    }
    this.#end(key);
  }

  expired(key: string, value: string): void {
    if (isRecordKey(key)) {
      this.#note(() => `Redis      ${key} expired`);
      this.records.expired(key);
      return;
    }
    this.#note(() => `Redis      ${key} of ${this.#owners.of(ownerIdOf(value), key).name} expired`);
    this.#end(key);
  }

  /** A replica has taken over. */
  failedOver(): void {
    takeOver(this.#owners, this.#server(), this.#loop.now, (key) => this.#end(key));
    this.records.failedOver();
  }

  /** The server lost its data. */
  lost(): void {
    for (const key of this.#owners.keys()) this.#end(key);
  }

  /** @returns whether it was taken by a clock that nobody can be asked to wait for. */
  #taken(
    key: string,
    { fencingToken }: Extract<LockValue, { kind: "lock" }>,
    owner: Owner,
    copy: WrittenCopy,
  ): boolean {
    owner.tokens.push(fencingToken);
    this.fence.taken(key, owner, fencingToken, copy.sentAt);
    return this.#isLate(copy, owner.name);
  }

  /** Rule 19. */
  #cooled(
    key: string,
    ownerId: string,
    expiresAt: number | undefined,
    replaced: Tenure | undefined,
  ): void {
    const { copy, touched, entries } = this.executions.current ?? {};
    const owner = this.#owners.get(ownerId);
    if (owner === undefined || copy === undefined) return;
    const broken = (what: string) =>
      this.#verdict.broken("cooldown", `the cooldown of ${owner.name} ${what}`);
    if (replaced?.owner === owner) owner.deletedAt.push(this.#loop.now);
    else if (touched?.get(key) !== ownerId) broken("was set without its lock");
    if (owner.cooldownAtMost === 0) broken("was set, and none was asked for");
    else if (Number(expiresAt) > owner.cooldownAtMost + this.#server().setBackMs) {
      broken(`ends at ${expiresAt}, after ${owner.cooldownAtMost}`);
    }
    if (owner.toldAt !== undefined && copy.sentAt > owner.toldAt) broken("was set by a retire");
    const until = entries?.find((each) => each.ownerId === ownerId)?.cooldownUntilMs;
    const most = this.#server().nowMs + 60_000;
    if (until === undefined || expiresAt !== Math.min(until, most)) {
      broken(`ends at ${expiresAt} and not at ${until}`);
    }
    owner.cooldownUntil ??= until;
    if (owner.cooldownUntil !== until) broken("was given another end");
  }

  /**
   * A copy refuses itself after its deadline, and long before it. The limits: a process that has
   * never had an answer, and whose clock is ahead by as much as its first copy was held; and a clock
   * of Redis that was set back.
   */
  #isLate({ sentAt, args }: WrittenCopy, name: string): boolean {
    const { acquireTimeoutMs } = this.#schedule.times;
    const { nowMs, setBackMs } = this.#server();
    const deadlineMs = Number(args[0]);
    const ageMs = this.#loop.now - sentAt;
    const isSetBack = setBackMs > 0 && nowMs + setBackMs > deadlineMs;
    if (isSetBack || ageMs <= 2.02 * acquireTimeoutMs + slackMs) return isSetBack;
    const aheadMs = deadlineMs - nowMs + ageMs - acquireTimeoutMs;
    const isLimit =
      aheadMs > acquireTimeoutMs && Math.abs(ageMs - aheadMs) <= acquireTimeoutMs + slackMs;
    if (!isLimit) {
      const age = `${ageMs.toFixed(1)} ms after it was written`;
      this.#verdict.broken("stale", `a copy of ${name} took effect ${age}`);
    }
    return true;
  }

  #end(key: string): void {
    const tenure = this.#owners.current(key);
    if (tenure === undefined) return;
    tenure.to = this.#loop.now;
    this.checkOrphan(tenure, this.#loop.now);
  }

  /**
   * Where Redis' clock was set back, a key that no retire could reach lives on until somebody asks
   * for its user, which is another invariant's. So it is judged for as long as it is retired.
   */
  #judgedUntil({ overAt, lostAt }: Owner, to: number): number {
    const { acquireTimeoutMs, ttlMs } = this.#schedule.times;
    const retiredMs = 2 * acquireTimeoutMs + ttlMs;
    return this.#server().setBackMs > 0 ? Math.min(to, (lostAt ?? overAt ?? to) + retiredMs) : to;
  }

  /** A key whose attempt is over, for longer than it takes to delete it. */
  checkOrphan({ owner, from, isByWrongClock, isRisen }: Tenure, to: number): void {
    const { participant, overAt, key, name } = owner;
    if (participant === undefined || overAt === undefined || participant.lockIsGone) return;
    if (isByWrongClock || isRisen === true || owner.wasForbidden || participant.machine.isDead)
      return;
    const since = Math.max(from, overAt);
    if (since >= to) return;
    // Rule 16: on a Cluster, a complete that is written again goes in two steps.
    const steps = this.#schedule.isCluster && owner.recordUntil !== undefined ? 2 : 1;
    const roundTripMs = steps * 2 * participant.longestLatencyMs;
    // A client that times commands out has to ask first whether the server is there again.
    const ticks = participant.plan.commandTimeout ? 2 : 1;
    const bound = ticks * (50 * 1.01 + roundTripMs + slackMs);
    const healthyMs = participant.health.longestHealthy(since, this.#judgedUntil(owner, to));
    if (healthyMs <= bound) return;
    this.#verdict.broken(
      "orphan",
      `${key} held ${name} for ${(to - since).toFixed(1)} ms after it was over, ${healthyMs.toFixed(1)} ms of them without any trouble`,
    );
  }
}

/**
 * A replica has taken over: some locks are gone, some are back, some expire earlier.
 *
 * @param end tells that who was at a key is no longer.
 */
function takeOver(
  owners: Owners,
  server: SimulatedRedis,
  now: number,
  end: (key: string) => void,
): void {
  for (const key of new Set([...owners.keys(), ...server.keys.names()])) {
    if (isRecordKey(key)) continue;
    const entry = server.keys.kept(key);
    const tenure = owners.current(key);
    const owner = entry && owners.of(ownerIdOf(entry.value), key);
    const stays = tenure !== undefined && tenure.owner === owner;
    if (!stays) end(key);
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
      const risen = { isByWrongClock: false, isRisen: true };
      owners.tenures(key).push({ owner, value, from: now, to: undefined, livesUntil, ...risen });
    }
  }
}
