import type { LostReason } from "../../../../src/errors.ts";
import type { Lease, UserLease } from "../../../../src/lock/lease.ts";
import { on, phase } from "../time/event-loop.ts";
import type { SimulatedProcess, World } from "../world.ts";
import { slackMs, Watch } from "./invariants.ts";
import type { Owner } from "./owners.ts";

interface Holding {
  readonly lease: Lease;
  readonly owner: Owner;
  readonly process: SimulatedProcess;
  /** Since when it has had no time left. */
  endedAt?: number | undefined;
  /** An extend has found the key gone, or somebody else's. */
  isGone: boolean;
  isGivenBack: boolean;
  isTold: boolean;
}

/** Watches every lease that was handed out and not given back, after every step. */
export class LeaseWatch extends Watch {
  readonly #holdings = new Set<Holding>();
  /** When a lease was lost because it could not be extended. */
  readonly #expiredAt = new Map<string, number>();

  /** @returns ends the watch: the lease was given back, by a complete or otherwise. */
  begin(lease: Lease, owner: Owner, process: SimulatedProcess): (isCompleted: boolean) => void {
    const holding: Holding = {
      lease,
      owner,
      process,
      isGone: false,
      isGivenBack: false,
      isTold: lease.signal.aborted,
    };
    this.#holdings.add(holding);
    const since = this.world.loop.now;
    let isQuiet = false;
    lease.signal.addEventListener("abort", () => {
      holding.isTold = true;
      this.#checkKept(holding, since);
      this.#checkReason(holding);
      if (isQuiet) this.world.broken("quiet", `${owner.name} was completed, and then lost`);
    });
    return (isCompleted) => {
      isQuiet = isCompleted;
      holding.isGivenBack = true;
      this.#holdings.delete(holding);
    };
  }

  /** The handler looks, at whatever moment. One that is not told goes on to the database. */
  looks({ ownerId, signal }: Lease): void {
    const holding = [...this.#holdings].find(({ owner }) => owner.id === ownerId);
    if (holding === undefined) return;
    const { owner } = holding;
    if (signal.aborted || !this.#keptItsData(owner) || isAtKey(this.world, owner)) return;
    this.world.broken("looked", `${owner.name} looked, and its key was not there`);
  }

  /** A process is dead, and its leases with it. */
  died(process: SimulatedProcess): void {
    for (const holding of this.#holdings) {
      if (holding.process === process) this.#holdings.delete(holding);
    }
  }

  /** An extend was answered. */
  extended(ownerId: string, kind: string): void {
    for (const holding of this.#holdings) {
      if (holding.owner.id !== ownerId) continue;
      if (kind === "gone" || kind === "freed" || kind === "foreign") holding.isGone = true;
      else if (kind === "done" && this.#expiredAt.get(ownerId) === this.world.loop.now) {
        this.world.broken("atHand", `${holding.owner.name} was lost, and its extend was answered`);
      }
    }
  }

  check(): void {
    if (this.#holdings.size === 0) return;
    const valid = new Map<string, Owner>();
    for (const holding of this.#holdings) {
      // Without looking: who looks is told.
      const { remainingMs } = on(holding.process.machine, () =>
        (holding.lease as UserLease).toJSON(),
      );
      const keptItsData = this.#keptItsData(holding.owner);
      if (remainingMs > 0 && keptItsData) {
        const { name, key } = holding.owner;
        const other = valid.get(key);
        if (other !== undefined) {
          this.world.broken("exclusion", `${other.name} and ${name} both hold ${key}`);
        }
        valid.set(key, holding.owner);
        this.#checkBacked(holding, remainingMs);
      }
      if (remainingMs > 0 && holding.process.lockIsGone) {
        this.world.broken("closed", `${holding.owner.name} has time left, and its lock is closed`);
      }
      this.#checkTold(holding, remainingMs, keptItsData);
    }
  }

  /** No extend waits for a replica: one that a failover has lost is the limit of rule 21. */
  #keptItsData({ serverLife, securedUntil = Number.POSITIVE_INFINITY }: Owner): boolean {
    return serverLife === this.world.server.life && this.world.loop.now < securedUntil - 0.001;
  }

  #checkBacked(holding: Holding, remainingMs: number): void {
    const { owner, process } = holding;
    const left = `a lease with ${remainingMs.toFixed(1)} ms left`;
    if (!isAtKey(this.world, holding.owner)) {
      this.world.broken("backed", `${owner.name} has ${left}, and its key is not there`);
      return;
    }
    const expiresAt = this.world.server.look(owner.key)?.expiresAt;
    if (expiresAt === undefined || owner.securedUntil !== undefined) return;
    const endsAt = this.world.loop.now + remainingMs / process.machine.rate;
    const goneAt = this.world.server.goneAt(expiresAt);
    if (endsAt <= goneAt + 0.001) return;
    this.world.broken(
      "backed",
      `${owner.name} has ${left}, and its key is gone ${(endsAt - goneAt).toFixed(1)} ms before that`,
    );
  }

  #checkTold(holding: Holding, remainingMs: number, keptItsData: boolean): void {
    const { owner, process } = holding;
    const { now } = this.world.loop;
    if (remainingMs > 0) holding.endedAt = undefined;
    else holding.endedAt ??= now;
    if (holding.isTold) return;
    if (holding.isGone && !holding.isGivenBack) {
      this.world.broken("told", `an extend of ${owner.name} found its key gone, and it goes on`);
    }
    const { machine } = process;
    // Nobody can tell a process that does not run; it is told when it goes on.
    if (machine.isPaused || now - machine.resumedAt <= slackMs) return;
    // The timers of a machine that slept are late: only a holder that looks is told in time.
    if (machine.sleptMs > 0) return;
    if (keptItsData && !isAtKey(this.world, holding.owner)) {
      this.world.broken("told", `the key of ${owner.name} is gone, and nobody has told its holder`);
      // A timer tells as much later as the clock was set forward; a look is told at once.
    } else if (
      holding.endedAt !== undefined &&
      now - holding.endedAt > slackMs + machine.setForwardMs
    ) {
      this.world.broken("told", `${owner.name} has had no time left for ${slackMs} ms, untold`);
    }
  }

  /** Rule 19: what is told to be freed was; and it is retired at once, as what was overtaken. */
  #checkReason({ lease, owner }: Holding): void {
    const { reason } = lease.signal.reason as { reason: LostReason };
    owner.lostAt ??= this.world.loop.now;
    if (reason === "freed" && !owner.wasFreed) {
      this.world.broken("freed", `${owner.name} is told that it was freed, and was not`);
    }
    if (reason === "freed" || reason === "overtaken") owner.overAt ??= this.world.loop.now;
  }

  /** On a healthy network a lease ends with its work, with `maxHoldMs` or with its lock. */
  #checkKept({ lease, owner, process, isGivenBack }: Holding, since: number): void {
    if (isGivenBack || owner.wasFreed) return;
    const { now } = this.world.loop;
    const { maxHoldMs, ttlMs } = this.world.schedule.times;
    const neverExtends = maxHoldMs === ttlMs;
    const { reason } = lease.signal.reason as { reason: LostReason };
    // By a timer, which gives an answer its turn. A look does not wait for one.
    if (reason === "expired" && this.world.loop.phase === phase.check)
      this.#expiredAt.set(owner.id, now);
    if (reason === "max-hold" || reason === "closed" || neverExtends) return;
    if (owner.serverLife !== this.world.server.life) return;
    if (process.machine.setForwardAt >= since) return;
    if (process.health.longestHealthy(since, now) < now - since) return;
    this.world.broken("kept", `${owner.name} was lost (${reason}) without any trouble`);
  }
}

interface Completing {
  readonly owner: Owner;
  readonly record: string;
  /** Until when the lease was valid when its complete began. */
  readonly validUntil: number;
}

/**
 * Rule 16: from the complete on, for as long as the lease was valid and the record would last, either
 * the lock or a record is there. Looked at after every step.
 */
export class CompleteWatch extends Watch {
  readonly #completing = new Set<Completing>();
  /** The runs whose process does not know yet what has become of the complete, and since when. */
  readonly #unsettled = new Map<Owner, number>();
  /** With those that were reported as unconfirmed, and may be sent still. */
  readonly #begun = new Set<Owner>();
  readonly #overdue = new Set<Owner>();
  /** The owner ids whose complete the server has executed. */
  readonly #executed = new Set<string>();

  begin(owner: Owner, { machine }: SimulatedProcess, remainingMs: number): void {
    this.#unsettled.set(owner, this.world.loop.now);
    this.#begun.add(owner);
    if (remainingMs <= 0) return;
    const record = this.world.recordKeyOf(owner);
    const validUntil = this.world.loop.now + remainingMs / machine.rate;
    this.#completing.add({ owner, record, validUntil });
  }

  settled(owner: Owner): void {
    this.#unsettled.delete(owner);
  }

  /** It was reported as unconfirmed, and is sent until it is executed, or the process closed. */
  overdue(owner: Owner): void {
    this.#overdue.add(owner);
  }

  executed(ownerId: string): void {
    this.#executed.add(ownerId);
  }

  /** Whether the process of a look may know that the submission is being completed. */
  mayBeKnownTo(owner: Owner): boolean {
    const record = this.world.recordKeyOf(owner);
    return [...this.#begun].some(
      (each) => each.process === owner.process && this.world.recordKeyOf(each) === record,
    );
  }

  /** Rule 17: no process runs a submission that it has run, and has still to record. */
  checkGrant(owner: Owner, from: number): void {
    const { world } = this;
    const record = world.recordKeyOf(owner);
    for (const [earlier, began] of this.#unsettled) {
      if (earlier.process !== owner.process || began >= from) continue;
      if (this.#overdue.has(earlier) && this.#isOver(earlier)) continue;
      if (owner.submission === undefined || world.recordKeyOf(earlier) !== record) continue;
      world.broken("once", `${owner.name} was acquired, and ${earlier.name} is being completed`);
    }
  }

  #isOver(earlier: Owner): boolean {
    return this.#executed.has(earlier.id) || earlier.process?.closeTimeoutMs !== undefined;
  }

  check(): void {
    for (const each of this.#completing) {
      const { owner, record, validUntil } = each;
      const isOver =
        this.world.loop.now >= Math.min(validUntil, owner.securedUntil ?? validUntil) ||
        this.world.server.nowMs >= Number(owner.recordUntil) ||
        owner.serverLife !== this.world.server.life ||
        this.world.recordWatch.standing(record) !== undefined;
      if (isOver) this.#completing.delete(each);
      else if (!isAtKey(this.world, owner)) {
        this.world.broken(
          "gap",
          `${owner.name} is being completed, and there is neither its lock nor a record`,
        );
      }
    }
  }
}

interface Highest {
  readonly token: number;
  readonly owner: Owner;
  readonly serverLife: number;
  readonly at: number;
}

/**
 * Rule 20: the token of a lease is above that of every earlier lease of its key. The limit: a clock
 * of Redis that was set back further than the process had heard when it asked.
 */
export class FenceWatch extends Watch {
  readonly #highest = new Map<string, Highest>();
  /** What each process had heard of clocks and tokens, and when: both rise. */
  readonly #heard = new Map<
    SimulatedProcess,
    { readonly at: number; readonly microseconds: number }[]
  >();

  /** An answer has brought a process a clock or a token. */
  heard(process: SimulatedProcess, microseconds: number): void {
    const heard = this.#heard.get(process) ?? [];
    this.#heard.set(process, heard);
    const at = this.world.loop.now;
    if (microseconds > (heard.at(-1)?.microseconds ?? 0)) heard.push({ at, microseconds });
  }

  taken(key: string, owner: Owner, token: number, sentAt: number): void {
    // A copy that comes late has an older floor, and makes no lease.
    if (owner.overAt !== undefined) return;
    const { life, setBackMs } = this.world.server;
    const before = this.#highest.get(key);
    if (before?.serverLife === life && before.token >= token) {
      const isLimit =
        before.owner === owner ||
        // No script takes less than a microsecond, but where it takes no time at all.
        (before.token === token && before.at === this.world.loop.now) ||
        (setBackMs > 0 && this.#heardBefore(owner, sentAt) < before.token) ||
        // No floor counts that is so far ahead.
        setBackMs > 60_000;
      if (!isLimit) {
        this.world.broken(
          "fenced",
          `${owner.name} got token ${token} for ${key}, after ${before.token} of ${before.owner.name}`,
        );
      }
      return;
    }
    this.#highest.set(key, { token, owner, serverLife: life, at: this.world.loop.now });
  }

  #heardBefore({ process }: Owner, time: number): number {
    const heard = process && this.#heard.get(process);
    return heard?.findLast(({ at }) => at < time)?.microseconds ?? 0;
  }
}

/** Nobody else is: it is there itself, or the tombstone that a person has put in its place. */
function isAtKey({ server }: World, { key, id }: Owner): boolean {
  const value = String(server.look(key)?.value);
  return value.startsWith(id) || value.startsWith(`freed:${id}:`);
}
