import type { Lease } from "../../../src/lock/lease.ts";
import type { AnswerChecks } from "./invariants/answer-checks.ts";
import type { Owner } from "./invariants/owners.ts";
import type { OperationPlan } from "./schedule.ts";
import type { SimulatedProcess, World } from "./world.ts";

/** How leases end, and what is asked of what their holders are told. */
export class Endings {
  readonly #world: World;
  readonly #answers: AnswerChecks;

  constructor(world: World, answers: AnswerChecks) {
    this.#world = world;
    this.#answers = answers;
  }

  /** @param given tells that the lease is given back from now on. */
  async end(
    plan: OperationPlan,
    process: SimulatedProcess,
    lease: Lease,
    owner: Owner | undefined,
    given: (isCompleted: boolean) => void,
  ): Promise<void> {
    const isCompleted = plan.kind === "submit" && plan.ending === "complete";
    const { cooldownMs, endsTwice } = plan;
    if (owner !== undefined) {
      const { loop, server } = this.#world;
      owner.overAt ??= loop.now;
      // Clocks run apart for as long as it was held. Both times are whole: one up, and one down.
      const driftMs = 0.011 * (loop.now - owner.askedAt) + 2;
      const hasNone = cooldownMs === 0 || lease.signal.aborted;
      owner.cooldownAtMost = hasNone ? 0 : server.nowMs + cooldownMs + driftMs;
    }
    const remainingMs = lease.remainingMs();
    given(isCompleted);
    const ended = isCompleted
      ? this.#complete(process, lease, owner, remainingMs, cooldownMs)
      : this.#release(process, lease, owner, remainingMs, cooldownMs);
    if (!endsTwice) return await ended;
    // The first of the two decides.
    const { acquireTimeoutMs, ttlMs } = this.#world.schedule.times;
    const again =
      isCompleted || plan.kind !== "submit" ? lease.release() : complete(lease, owner, 0);
    const second = await this.#world.callWatch.settles(
      `the second ending of ${process.machine.name}`,
      process,
      isCompleted ? 2 * acquireTimeoutMs + ttlMs : acquireTimeoutMs,
      again,
      50,
    );
    if (!isCompleted && plan.kind === "submit" && second !== "unconfirmed") {
      this.#world.verdict.broken("truthful", `${owner?.name} was released, and then ${second}`);
    }
    await ended;
  }

  async #release(
    process: SimulatedProcess,
    lease: Lease,
    owner: Owner | undefined,
    remainingMs: number,
    cooldownMs: number,
  ): Promise<void> {
    const world = this.#world;
    const began = world.loop.now;
    const validUntil = began + remainingMs / process.machine.rate;
    const outcome = await world.callWatch.settles(
      `release of ${process.machine.name}`,
      process,
      world.schedule.times.acquireTimeoutMs,
      lease.release(limited(cooldownMs)),
    );
    world.note(() => `${process.machine.name}  release of ${owner?.name}: ${outcome}`);
    world.count(`release: ${outcome}`);
    if (owner === undefined) return;
    if (outcome !== "unconfirmed") owner.toldAt = world.loop.now;
    this.#answers.checkTruthful(owner, outcome, validUntil, began);
  }

  async #complete(
    process: SimulatedProcess,
    lease: Lease,
    owner: Owner | undefined,
    remainingMs: number,
    cooldownMs: number,
  ): Promise<void> {
    const world = this.#world;
    const { acquireTimeoutMs, ttlMs } = world.schedule.times;
    const began = world.loop.now;
    const asked = complete(lease, owner, cooldownMs);
    if (owner !== undefined) {
      world.completeWatch.begin(owner, process, world.recordKeyOf(process, owner), remainingMs);
    }
    const outcome = await world.callWatch.settles(
      `complete of ${process.machine.name}`,
      process,
      2 * acquireTimeoutMs + ttlMs,
      asked,
      50,
    );
    world.note(() => `${process.machine.name}  complete of ${owner?.name}: ${outcome}`);
    world.count(`complete: ${outcome}`);
    if (owner === undefined) return;
    owner.wasRecorded = outcome === "recorded" || outcome === "late";
    if (outcome !== "unconfirmed") owner.toldAt = world.loop.now;
    else this.#answers.checkUnconfirmed(owner, process, began);
    this.#answers.checkCompleted(owner, process, outcome, began);
  }
}

/** The answer names who has given it. */
function complete(lease: Lease, owner: Owner | undefined, cooldownMs: number) {
  return lease.complete({ status: 201, body: String(owner?.name) }, limited(cooldownMs));
}

function limited(cooldownMs: number): { cooldownMs: number } | undefined {
  return cooldownMs === 0 ? undefined : { cooldownMs };
}
