import {
  acquireScript,
  extendScript,
  releaseScript,
} from "../../../../src/stores/redis/scripts.ts";
import type { WrittenCopy } from "../network/surroundings.ts";
import type { Schedule } from "../schedule.ts";
import type { KeyListener } from "../server/keys.ts";
import type { SimulatedRedis } from "../server/simulated-redis.ts";
import type { EventLoop } from "../time/event-loop.ts";
import type { Owners, Tenure } from "./owners.ts";
import type { Verdict } from "./verdict.ts";

/** Rounding of clocks to milliseconds, timers that come late, a turn of the loop. */
export const slackMs = 4;

/** Watches every change of every key. */
export class KeyObserver implements KeyListener {
  /** The copy that the server executes at the moment. */
  executing: WrittenCopy | undefined;
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
  }

  /** The server executes a copy: `run` does it. */
  executes(copy: WrittenCopy, run: () => unknown): unknown {
    this.executing = copy;
    try {
      return run();
    } catch (error) {
      if (copy.script === releaseScript && String(error).includes("NOPERM")) {
        for (const id of copy.args) {
          const owner = this.#owners.get(String(id));
          if (owner !== undefined) owner.wasForbidden = true;
        }
      }
      throw error;
    } finally {
      this.executing = undefined;
    }
  }

  set(key: string, value: string, expiresAt: number | undefined): void {
    const { now } = this.#loop;
    const owner = this.#owners.of(value, key);
    this.#note(() => `Redis      ${key} = ${owner.name}`);
    owner.serverLife ??= this.#server().life;
    const tenures = this.#owners.tenures(key);
    this.#end(key, "overwritten");
    const isByWrongClock =
      this.executing?.script === acquireScript && this.#isLate(this.executing, owner.name);
    tenures.push({ owner, from: now, to: undefined, livesUntil: expiresAt, isByWrongClock });
  }

  lengthened(key: string, _value: string, expiresAt: number): void {
    const tenure = this.#owners.current(key);
    if (tenure === undefined) return;
    const copy = this.executing;
    const isAdoption = tenure.owner.participant === undefined && copy?.script === acquireScript;
    if (copy?.script === extendScript && copy.args.includes(tenure.owner.id)) {
      this.#note(() => `Redis      ${key} of ${tenure.owner.name} lengthened`);
      tenure.livesUntil = expiresAt;
      return;
    }
    if (isAdoption) {
      const { maxHoldMs } = this.#schedule.times;
      this.#note(() => `Redis      ${key} of ${tenure.owner.name} is given an expiry`);
      if (tenure.livesUntil !== undefined || expiresAt - this.#server().nowMs !== maxHoldMs) {
        this.#verdict.broken("lifetime", `${key} of an old lock was given another life`);
      }
      tenure.livesUntil = expiresAt;
      return;
    }
    this.#verdict.broken(
      "lifetime",
      `${key} of ${tenure.owner.name} was lengthened by another command`,
    );
  }

  deleted(key: string, value: string): void {
    const owner = this.#owners.of(value, key);
    this.#note(() => `Redis      ${key} of ${owner.name} deleted`);
    if (this.executing?.args.includes(value) === true) owner.deletedAt.push(this.#loop.now);
    else
      this.#verdict.broken(
        "ownKey",
        `${key} of ${owner.name} was deleted by somebody else's command`,
      );
    this.#end(key, "deleted");
  }

  expired(key: string, value: string): void {
    this.#note(() => `Redis      ${key} of ${this.#owners.of(value, key).name} expired`);
    this.#end(key, "expired");
  }

  /** The server lost its data. */
  lost(): void {
    for (const key of this.#owners.keys()) this.#end(key, "lost");
  }

  /**
   * A copy refuses itself after its deadline, and long before it. The limit: a process that has
   * never had an answer, and whose clock is ahead by as much as its first copy was held.
   */
  #isLate({ sentAt, args }: WrittenCopy, name: string): boolean {
    const { acquireTimeoutMs } = this.#schedule.times;
    const ageMs = this.#loop.now - sentAt;
    if (ageMs <= 2.02 * acquireTimeoutMs + slackMs) return false;
    const aheadMs = Number(args[0]) - this.#server().nowMs + ageMs - acquireTimeoutMs;
    const isLimit =
      aheadMs > acquireTimeoutMs && Math.abs(ageMs - aheadMs) <= acquireTimeoutMs + slackMs;
    if (!isLimit) {
      const age = `${ageMs.toFixed(1)} ms after it was written`;
      this.#verdict.broken("stale", `a copy of ${name} took effect ${age}`);
    }
    return true;
  }

  #end(key: string, _how: string): void {
    const tenure = this.#owners.current(key);
    if (tenure === undefined) return;
    tenure.to = this.#loop.now;
    this.checkOrphan(tenure, this.#loop.now);
  }

  /** A key whose attempt is over, for longer than it takes to delete it. */
  checkOrphan({ owner, from, isByWrongClock }: Tenure, to: number): void {
    const { participant, overAt, key, name } = owner;
    if (participant === undefined || overAt === undefined || participant.lockIsGone) return;
    if (isByWrongClock || owner.wasForbidden) return;
    const since = Math.max(from, overAt);
    if (since >= to) return;
    const roundTripMs = 2 * participant.longestLatencyMs;
    // A client that times commands out has to ask first whether the server is there again.
    const ticks = participant.plan.commandTimeout ? 2 : 1;
    const bound = ticks * (50 * 1.01 + roundTripMs + slackMs);
    const healthyMs = participant.health.longestHealthy(since, to);
    if (healthyMs <= bound) return;
    this.#verdict.broken(
      "orphan",
      `${key} held ${name} for ${(to - since).toFixed(1)} ms after it was over, ${healthyMs.toFixed(1)} ms of them without any trouble`,
    );
  }
}
