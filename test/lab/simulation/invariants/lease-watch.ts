import type { LostReason } from "../../../../src/errors.ts";
import type { Lease } from "../../../../src/lock/lease.ts";
import type { LockTimes } from "../../../../src/lock/store.ts";
import type { Participant } from "../participant.ts";
import type { SimulatedRedis } from "../server/simulated-redis.ts";
import { type EventLoop, on } from "../time/event-loop.ts";
import { slackMs } from "./key-watch.ts";
import type { Owner } from "./owners.ts";
import type { Verdict } from "./verdict.ts";

interface Holding {
  readonly lease: Lease;
  readonly owner: Owner;
  readonly participant: Participant;
  /** Since when it has had no time left. */
  endedAt: number | undefined;
  /** An extend has found the key gone, or somebody else's. */
  isGone: boolean;
  isGivenBack: boolean;
}

/** Watches every lease that was handed out and not given back, after every step. */
export class LeaseWatch {
  readonly #holdings = new Set<Holding>();
  /** When a lease was lost because it could not be extended. */
  readonly #expiredAt = new Map<string, number>();
  readonly #loop: EventLoop;
  readonly #server: SimulatedRedis;
  readonly #verdict: Verdict;

  readonly #neverExtends: boolean;

  constructor(loop: EventLoop, server: SimulatedRedis, verdict: Verdict, times: LockTimes) {
    this.#loop = loop;
    this.#server = server;
    this.#verdict = verdict;
    this.#neverExtends = times.maxHoldMs === times.ttlMs;
  }

  /** @returns ends the watch: the lease was given back, by a complete or otherwise. */
  begin(lease: Lease, owner: Owner, participant: Participant): (isCompleted: boolean) => void {
    const holding: Holding = {
      lease,
      owner,
      participant,
      endedAt: undefined,
      isGone: false,
      isGivenBack: false,
    };
    this.#holdings.add(holding);
    const since = this.#loop.now;
    let isQuiet = false;
    lease.signal.addEventListener("abort", () => {
      this.#checkKept(holding, since);
      this.#checkReason(holding);
      if (isQuiet) this.#verdict.broken("quiet", `${owner.name} was completed, and then lost`);
    });
    return (isCompleted) => {
      isQuiet = isCompleted;
      holding.isGivenBack = true;
      this.#holdings.delete(holding);
    };
  }

  /** A process is dead, and its leases with it. */
  died(participant: Participant): void {
    for (const holding of this.#holdings) {
      if (holding.participant === participant) this.#holdings.delete(holding);
    }
  }

  /** An extend was answered. */
  extended(ownerId: string, kind: string): void {
    for (const holding of this.#holdings) {
      if (holding.owner.id !== ownerId) continue;
      if (kind === "gone" || kind === "freed" || kind === "foreign") holding.isGone = true;
      else if (kind === "done" && this.#expiredAt.get(ownerId) === this.#loop.now) {
        this.#verdict.broken(
          "atHand",
          `${holding.owner.name} was lost, and its extend was answered`,
        );
      }
    }
  }

  check(): void {
    if (this.#holdings.size === 0) return;
    const valid = new Map<string, Holding>();
    for (const holding of this.#holdings) {
      const remainingMs = on(holding.participant.machine, () => holding.lease.remainingMs());
      const keptItsData = this.#keptItsData(holding.owner);
      if (remainingMs > 0) {
        const other = valid.get(holding.owner.key);
        if (other !== undefined && keptItsData) this.#overlap(other, holding);
        if (keptItsData) {
          valid.set(holding.owner.key, holding);
          this.#checkBacked(holding, remainingMs);
        }
      }
      if (remainingMs > 0 && holding.participant.lockIsGone) {
        this.#verdict.broken(
          "closed",
          `${holding.owner.name} has time left, and its lock is closed`,
        );
      }
      this.#checkTold(holding, remainingMs, keptItsData);
    }
  }

  /** No extend waits for a replica: one that a failover has lost is the limit of rule 21. */
  #keptItsData({ serverLife, securedUntil = Number.POSITIVE_INFINITY }: Owner): boolean {
    return serverLife === this.#server.life && this.#loop.now < securedUntil - 0.001;
  }

  #overlap(one: Holding, other: Holding): void {
    this.#verdict.broken(
      "exclusion",
      `${one.owner.name} and ${other.owner.name} both hold ${one.owner.key}`,
    );
  }

  /** Nobody else is: it is there itself, or the tombstone that a person has put in its place. */
  #isAtKey({ owner }: Holding): boolean {
    const value = String(this.#server.look(owner.key)?.value);
    return value.startsWith(owner.id) || value.startsWith(`freed:${owner.id}:`);
  }

  #checkBacked(holding: Holding, remainingMs: number): void {
    const { owner, participant } = holding;
    const left = `a lease with ${remainingMs.toFixed(1)} ms left`;
    if (!this.#isAtKey(holding)) {
      this.#verdict.broken("backed", `${owner.name} has ${left}, and its key is not there`);
      return;
    }
    const expiresAt = this.#server.look(owner.key)?.expiresAt;
    if (expiresAt === undefined || owner.securedUntil !== undefined) return;
    const endsAt = this.#loop.now + remainingMs / participant.machine.rate;
    const goneAt = this.#server.goneAt(expiresAt);
    if (endsAt <= goneAt + 0.001) return;
    this.#verdict.broken(
      "backed",
      `${owner.name} has ${left}, and its key is gone ${(endsAt - goneAt).toFixed(1)} ms before that`,
    );
  }

  #checkTold(holding: Holding, remainingMs: number, keptItsData: boolean): void {
    const { lease, owner, participant } = holding;
    const { now } = this.#loop;
    if (remainingMs > 0) holding.endedAt = undefined;
    else holding.endedAt ??= now;
    if (lease.signal.aborted) return;
    if (holding.isGone && !holding.isGivenBack) {
      this.#verdict.broken("told", `an extend of ${owner.name} found its key gone, and it goes on`);
    }
    const { machine } = participant;
    // Nobody can tell a process that does not run; it is told when it goes on.
    if (machine.isPaused || now - machine.resumedAt <= slackMs) return;
    if (keptItsData && !this.#isAtKey(holding)) {
      this.#verdict.broken(
        "told",
        `the key of ${owner.name} is gone, and nobody has told its holder`,
      );
    } else if (holding.endedAt !== undefined && now - holding.endedAt > slackMs) {
      this.#verdict.broken("told", `${owner.name} has had no time left for ${slackMs} ms, untold`);
    }
  }

  /** Rule 19: what is told to be freed was; and it is retired at once, as what was overtaken. */
  #checkReason({ lease, owner }: Holding): void {
    const { reason } = lease.signal.reason as { reason: LostReason };
    owner.lostAt ??= this.#loop.now;
    if (reason === "freed" && !owner.wasFreed) {
      this.#verdict.broken("freed", `${owner.name} is told that it was freed, and was not`);
    }
    if (reason === "freed" || reason === "overtaken") owner.overAt ??= this.#loop.now;
  }

  /** On a healthy network a lease ends with its work, with `maxHoldMs` or with its lock. */
  #checkKept({ lease, owner, participant, isGivenBack }: Holding, since: number): void {
    if (isGivenBack || owner.wasFreed) return;
    const { now } = this.#loop;
    const { reason } = lease.signal.reason as { reason: LostReason };
    if (reason === "expired") this.#expiredAt.set(owner.id, now);
    if (reason === "max-hold" || reason === "closed" || this.#neverExtends) return;
    if (owner.serverLife !== this.#server.life) return;
    if (participant.health.longestHealthy(since, now) < now - since) return;
    this.#verdict.broken("kept", `${owner.name} was lost (${reason}) without any trouble`);
  }
}
