import { isSubmitLockError } from "../../../src/errors.ts";
import type { Lease } from "../../../src/lock/lease.ts";
import type { RepeatAttempt } from "../../../src/lock/repeats.ts";
import { type IdentifiedOptions, identify, type Submission } from "../../../src/lock/submission.ts";
import { AnswerChecks } from "./invariants/answer-checks.ts";
import { slackMs } from "./invariants/invariants.ts";
import type { Owner } from "./invariants/owners.ts";
import type { OperationPlan, Schedule } from "./schedule.ts";
import { calls, nominalRetainMs } from "./witnessed-store.ts";
import type { SimulatedProcess, World } from "./world.ts";

/**
 * How processes ask for locks, work under them and let go of them, and what is asked of every answer
 * that they get.
 */
export class Attempts {
  readonly #world: World;
  readonly #answers: AnswerChecks;
  /** Since when each process asks for a submission: a repeat shares the attempt that is under way. */
  readonly #asking = new Map<string, number>();
  #calls = 0;

  constructor(world: World) {
    this.#world = world;
    this.#answers = new AnswerChecks(world);
  }

  async acquire(plan: OperationPlan, process: SimulatedProcess): Promise<void> {
    const key = process.lock.keyFor(String(plan.user));
    // One at a time: what another one asks for the same key could not be told apart.
    const waits = plan.kind === "submit" && plan.waitMs > 0 && !process.store.waiting.has(key);
    const world = this.#world;
    const { loop, schedule } = world;
    const call = ++this.#calls;
    const from = loop.now;
    const asks = [process.machine.name, plan.kind, plan.user, plan.submission, plan.payload].join();
    const { acquireTimeoutMs } = schedule.times;
    const earlier = plan.kind === "submit" ? (this.#asking.get(asks) ?? from) : from;
    const since = Math.max(earlier, from - 1.02 * acquireTimeoutMs - slackMs);
    this.#asking.set(asks, since);
    const startedAt = process.machine.monotonicMs();
    const wasReady = [...process.clients].every(({ status }) => status === "ready");
    if (waits) process.store.waiting.set(key, call);
    const waitMs = waits ? plan.waitMs : 0;
    const asked = this.#during(process, call, () => ask(process, plan, waitMs));
    const attempt = await world.callWatch.settles(
      `acquire of ${process.machine.name}`,
      process,
      // A silent store is waited for as long as by an attempt, and with its last look.
      waits
        ? 2 * acquireTimeoutMs + waitMs + schedule.times.commandTimeoutMs + slackMs
        : acquireTimeoutMs,
      asked,
      // The look that a pause has held up.
      waits ? schedule.times.commandTimeoutMs + slackMs : 0,
    );
    if (waits) process.store.waiting.delete(key);
    this.#asking.delete(asks);
    if (attempt.outcome === "told") {
      const waiter = world.ownersOf(call).at(-1);
      world.count("submit: told");
      for (const each of world.ownersOf(call)) this.#over(each);
      if (waiter !== undefined) this.#answers.checkTold(waiter, attempt.answer, from);
      return;
    }
    const owner = world.ownersOf(call).at(-1);
    const tookMs = process.machine.monotonicMs() - startedAt;
    world.count(`${plan.kind === "submit" ? "submit" : "acquire"}: ${attempt.outcome}`);
    world.note(
      () =>
        `${process.machine.name}  ${owner?.name} is ${attempt.outcome} after ${tookMs.toFixed(1)} ms`,
    );
    if (attempt.outcome !== "acquired") {
      this.#over(owner);
      for (const each of world.ownersOf(call)) this.#over(each);
      if (attempt.outcome !== "unavailable") this.#answers.checkJustified(call, attempt, since);
      // One that has waited had other answers before; one without an owner shares an earlier attempt.
      else if (wasReady && attempt.isRepeat !== true && owner !== undefined)
        this.#answers.checkResolved(process, from, attempt.cause, owner);
      return;
    }
    if (attempt.confirmed) world.count("acquire: confirmed");
    const { lease } = attempt;
    if (tookMs >= acquireTimeoutMs || lease.remainingMs() <= 0) {
      world.broken(
        "inTime",
        `${owner?.name} acquired after ${tookMs.toFixed(1)} of ${acquireTimeoutMs} ms, with ${lease.remainingMs().toFixed(1)} ms left`,
      );
    }
    if (owner !== undefined) {
      this.#answers.checkGrant(lease, owner);
      world.completeWatch.checkGrant(owner, from);
    }
    const given = await this.#hold(plan, process, lease);
    await this.#end(plan, process, lease, owner, given);
  }

  async lookUp(plan: OperationPlan, process: SimulatedProcess): Promise<void> {
    const world = this.#world;
    const call = ++this.#calls;
    const from = world.loop.now;
    const asked = this.#during(process, call, () =>
      process.lock
        .lookUp(String(plan.user), { submission: submissionOf(plan) })
        .catch((error: unknown) => {
          if (isSubmitLockError(error) && error.code === "SUBMIT_LOCK_CLOSED") return error;
          throw error;
        }),
    );
    const found = await world.callWatch.settles(
      `look-up of ${process.machine.name}`,
      process,
      world.schedule.times.commandTimeoutMs,
      asked,
    );
    if (found instanceof Error) {
      world.count(`lookUp: ${found.code}`);
      return;
    }
    world.count(`lookUp: ${found.outcome}`);
    const owner = world.ownersOf(call).at(-1);
    world.note(() => `${process.machine.name}  look-up of ${owner?.name}: ${found.outcome}`);
    this.#over(owner);
    if (owner !== undefined) this.#answers.checkLookUp(owner, found, from);
  }

  async withLock(plan: OperationPlan, process: SimulatedProcess): Promise<void> {
    const key = process.lock.keyFor(String(plan.user));
    // One at a time: what another one asks for the same key could not be told apart.
    if (process.store.waiting.has(key)) return await this.acquire(plan, process);
    const world = this.#world;
    const { acquireTimeoutMs } = world.schedule.times;
    const call = ++this.#calls;
    const from = world.loop.now;
    const name = `withLock of ${process.machine.name}`;
    let worksNow = () => {};
    const works = new Promise<void>((resolve) => {
      worksNow = resolve;
    });
    let ended = works;
    process.store.waiting.set(key, call);
    const done = this.#during(process, call, () =>
      process.lock.withLock(String(plan.user), { waitMs: plan.waitMs }, async (lease) => {
        worksNow();
        const given = await this.#hold(plan, process, lease);
        given(false);
        this.#over(world.owners.get(lease.ownerId));
        ended = world.callWatch.settles(
          `${name}, its release`,
          process,
          acquireTimeoutMs + 50,
          done,
        );
      }),
    );
    const waited = Promise.race([works, done]);
    try {
      await world.callWatch.settles(
        name,
        process,
        plan.waitMs + acquireTimeoutMs + slackMs,
        waited,
        acquireTimeoutMs,
      );
      await done;
      world.count("withLock: done");
    } catch (error) {
      if (!isSubmitLockError(error)) throw error;
      world.count(`withLock: ${error.code}`);
      world.note(() => `${process.machine.name}  withLock: ${error.message}`);
      if (error.code === "SUBMIT_LOCK_CONTENDED") {
        this.#answers.checkJustified(call, { outcome: "contended", expiresInMs: 0 }, from);
      }
    }
    process.store.waiting.delete(key);
    await ended;
    for (const owner of world.ownersOf(call)) this.#over(owner);
  }

  /**
   * The handler: works for its time, or until it hears that the lease is lost.
   *
   * @returns tells that the lease is given back.
   */
  async #hold(
    plan: OperationPlan,
    process: SimulatedProcess,
    lease: Lease,
  ): Promise<(isCompleted: boolean) => void> {
    const world = this.#world;
    const owner = world.owners.get(lease.ownerId);
    if (owner === undefined) return () => {};
    const given = world.leaseWatch.begin(lease, owner, process);
    await new Promise<void>((resolve) => {
      const work = process.machine.setTimer(plan.workMs, resolve);
      // An answer that the handler waits for, as that of a bank: read before any timer of its turn.
      process.machine.after(plan.looksAtMs, () => world.leaseWatch.looks(lease));
      lease.signal.addEventListener("abort", () => {
        world.note(() => `${process.machine.name}  ${owner.name} is told: ${lease.signal.reason}`);
        world.count(`lost: ${lease.signal.reason.reason}`);
        if (!plan.heedsSignal) return;
        work.clear();
        resolve();
      });
    });
    return given;
  }

  /** @param given tells that the lease is given back from now on. */
  async #end(
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
    const { schedule } = this.#world;
    const again =
      isCompleted || plan.kind !== "submit" ? lease.release() : complete(lease, owner, 0);
    const second = await this.#world.callWatch.settles(
      `the second ending of ${process.machine.name}`,
      process,
      isCompleted ? completesWithin(schedule) : schedule.times.acquireTimeoutMs,
      again,
      50,
    );
    if (!isCompleted && plan.kind === "submit" && second !== "unconfirmed") {
      this.#world.broken("truthful", `${owner?.name} was released, and then ${second}`);
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
    const began = this.#world.loop.now;
    // The answer names who has given it.
    const told = { status: 402, body: String(owner?.name) };
    const asked = lease.release({ cooldownMs, ...(owner?.submission && { told }) });
    const outcome = await this.#settles("release", process, owner, asked);
    const validUntil = began + remainingMs / process.machine.rate;
    if (owner !== undefined) this.#answers.checkTruthful(owner, outcome, validUntil, began);
  }

  async #complete(
    process: SimulatedProcess,
    lease: Lease,
    owner: Owner | undefined,
    remainingMs: number,
    cooldownMs: number,
  ): Promise<void> {
    const began = this.#world.loop.now;
    const asked = complete(lease, owner, cooldownMs);
    if (owner !== undefined) this.#world.completeWatch.begin(owner, process, remainingMs);
    const outcome = await this.#settles("complete", process, owner, asked);
    if (owner === undefined) return;
    const { completeWatch, loop } = this.#world;
    const isOverdue = loop.now - began >= completesWithin(this.#world.schedule) / 2;
    if (outcome === "unconfirmed" && isOverdue) completeWatch.overdue(owner);
    else completeWatch.settled(owner);
    owner.wasRecorded = outcome === "recorded" || outcome === "late";
    if (outcome === "unconfirmed") this.#answers.checkUnconfirmed(owner, process, began);
    this.#answers.checkCompleted(owner, outcome, began);
  }

  async #settles<Outcome extends string>(
    what: "release" | "complete",
    process: SimulatedProcess,
    owner: Owner | undefined,
    asked: Promise<Outcome>,
  ): Promise<Outcome> {
    const world = this.#world;
    const name = `${what} of ${process.machine.name}`;
    const outcome = await (what === "release"
      ? world.callWatch.settles(name, process, world.schedule.times.acquireTimeoutMs, asked)
      : world.callWatch.settles(name, process, completesWithin(world.schedule), asked, 50));
    world.note(() => `${process.machine.name}  ${what} of ${owner?.name}: ${outcome}`);
    world.count(`${what}: ${outcome}`);
    if (owner !== undefined && outcome !== "unconfirmed") owner.toldAt = world.loop.now;
    return outcome;
  }

  /** What is asked of the store in here is asked by this call. */
  #during<Result>(process: SimulatedProcess, call: number, ask: () => Result): Result {
    process.store.call = call;
    try {
      return calls.run(call, ask);
    } finally {
      process.store.call = undefined;
    }
  }

  #over(owner: Owner | undefined): void {
    if (owner !== undefined) owner.overAt ??= this.#world.loop.now;
  }
}

function ask(
  { lock }: SimulatedProcess,
  plan: OperationPlan,
  waitMs: number,
): Promise<RepeatAttempt> {
  const user = String(plan.user);
  return plan.kind === "submit"
    ? lock.acquireOrWait(user, identityOf(user, plan), waitMs)
    : lock.acquire(user);
}

export function identityOf(user: string, plan: OperationPlan): IdentifiedOptions {
  return { identity: identify(user, submissionOf(plan)), retainMs: nominalRetainMs };
}

function submissionOf({ submission, payload }: OperationPlan): Submission {
  return {
    id: `submission ${submission}`,
    retainMs: nominalRetainMs,
    ...(payload === 0 ? {} : { fingerprint: `payload ${payload}` }),
  };
}

/** The answer names who has given it. */
function complete(lease: Lease, owner: Owner | undefined, cooldownMs: number) {
  return lease.complete({ status: 201, body: String(owner?.name) }, limited(cooldownMs));
}

function completesWithin({ times }: Schedule): number {
  return 2 * times.acquireTimeoutMs + times.ttlMs;
}

function limited(cooldownMs: number): { cooldownMs: number } | undefined {
  return cooldownMs === 0 ? undefined : { cooldownMs };
}
