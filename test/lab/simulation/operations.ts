import { isSubmitLockError } from "../../../src/errors.ts";
import type { Lease } from "../../../src/lock/lease.ts";
import { AnswerChecks } from "./invariants/answer-checks.ts";
import { slackMs } from "./invariants/key-observer.ts";
import type { Owner } from "./invariants/owners.ts";
import type { OperationPlan } from "./schedule.ts";
import type { SimulatedProcess, Simulation } from "./simulation.ts";

/** What the processes do with their locks, and what is asked of every answer that they get. */
export class Operations {
  readonly #simulation: Simulation;
  readonly #answers: AnswerChecks;
  #calls = 0;
  #underWay = 0;

  constructor(simulation: Simulation) {
    this.#simulation = simulation;
    this.#answers = new AnswerChecks(simulation);
    simulation.schedule.operations.forEach((plan) => {
      // Not before the connections could have come up.
      this.#plan(plan, 15 + plan.atMs);
    });
  }

  get areOver(): boolean {
    return this.#underWay === 0;
  }

  #plan(plan: OperationPlan, atMs: number): void {
    const process = this.#simulation.processOf(plan.process);
    this.#underWay++;
    process.machine.after(atMs, () => {
      void this.#do(plan, process).finally(() => this.#underWay--);
    });
  }

  async #do(plan: OperationPlan, process: SimulatedProcess): Promise<void> {
    this.#simulation.count(`operation: ${plan.kind}`);
    switch (plan.kind) {
      case "acquire":
        return await this.#acquire(plan, process);
      case "withLock":
        // One at a time: what another one asks for the same key could not be told apart.
        if (process.store.waiting.has(keyOf(plan.user))) return await this.#acquire(plan, process);
        return await this.#withLock(plan, process);
      case "close":
        return await this.close(process, plan.workMs);
      case "oldLock":
        return this.#oldLock(plan);
    }
  }

  /** A `SETNX` of another program, whose `EXPIRE` never came. */
  #oldLock({ user }: OperationPlan): void {
    const { server } = this.#simulation;
    const key = keyOf(user);
    if (server.look(key) === undefined) server.keys.set(key, `old ${this.#calls++}`, undefined);
  }

  async #acquire(plan: OperationPlan, process: SimulatedProcess): Promise<void> {
    const simulation = this.#simulation;
    const { loop, schedule } = simulation;
    const call = ++this.#calls;
    const from = loop.now;
    const startedAt = process.machine.monotonicMs();
    const wasReady = [...process.clients].every(({ status }) => status === "ready");
    process.store.call = call;
    const asked = process.lock.acquire(String(plan.user));
    process.store.call = undefined;
    const { acquireTimeoutMs } = schedule.times;
    const attempt = await simulation.callObserver.settles(
      `acquire of ${process.machine.name}`,
      process,
      acquireTimeoutMs,
      asked,
    );
    const owner = simulation.ownersOf(call).at(-1);
    const tookMs = process.machine.monotonicMs() - startedAt;
    simulation.count(`acquire: ${attempt.outcome}`);
    simulation.note(
      () =>
        `${process.machine.name}  ${owner?.name} is ${attempt.outcome} after ${tookMs.toFixed(1)} ms`,
    );
    if (attempt.outcome !== "acquired") {
      this.#over(owner);
      if (attempt.outcome === "contended")
        this.#answers.checkJustified(call, keyOf(plan.user), from);
      else if (wasReady) this.#answers.checkResolved(process, from, attempt.cause, owner);
      return;
    }
    if (attempt.confirmed) simulation.count("acquire: confirmed");
    const { lease } = attempt;
    if (tookMs >= acquireTimeoutMs || lease.remainingMs() <= 0) {
      simulation.verdict.broken(
        "inTime",
        `${owner?.name} acquired after ${tookMs.toFixed(1)} of ${acquireTimeoutMs} ms, with ${lease.remainingMs().toFixed(1)} ms left`,
      );
    }
    await this.#hold(plan, process, lease);
    const began = loop.now;
    const validUntil = began + lease.remainingMs() / process.machine.rate;
    const outcome = await simulation.callObserver.settles(
      `release of ${process.machine.name}`,
      process,
      acquireTimeoutMs + 50,
      lease.release(),
    );
    simulation.note(() => `${process.machine.name}  release of ${owner?.name}: ${outcome}`);
    simulation.count(`release: ${outcome}`);
    if (owner !== undefined) this.#answers.checkTruthful(owner, outcome, validUntil, began);
  }

  /** The handler: works for its time, or until it hears that the lease is lost. */
  async #hold(plan: OperationPlan, process: SimulatedProcess, lease: Lease): Promise<void> {
    const simulation = this.#simulation;
    const owner = simulation.owners.get(lease.ownerId);
    if (owner === undefined) return;
    const given = simulation.leaseObserver.begin(lease, owner, process);
    await new Promise<void>((resolve) => {
      const work = process.machine.setTimer(plan.workMs, false, resolve);
      lease.signal.addEventListener("abort", () => {
        simulation.note(
          () => `${process.machine.name}  ${owner.name} is told: ${lease.signal.reason}`,
        );
        simulation.count(`lost: ${lease.signal.reason.reason}`);
        if (!plan.heedsSignal) return;
        work.clear();
        resolve();
      });
    });
    given();
    this.#over(owner);
  }

  async #withLock(plan: OperationPlan, process: SimulatedProcess): Promise<void> {
    const simulation = this.#simulation;
    const { acquireTimeoutMs } = simulation.schedule.times;
    const call = ++this.#calls;
    const from = simulation.loop.now;
    const name = `withLock of ${process.machine.name}`;
    let worksNow = () => {};
    const works = new Promise<void>((resolve) => {
      worksNow = resolve;
    });
    let ended = works;
    process.store.call = call;
    process.store.waiting.set(keyOf(plan.user), call);
    const done = process.lock.withLock(
      String(plan.user),
      { waitMs: plan.waitMs },
      async (lease) => {
        worksNow();
        await this.#hold(plan, process, lease);
        ended = simulation.callObserver.settles(
          `${name}, its release`,
          process,
          acquireTimeoutMs + 50,
          done,
        );
      },
    );
    process.store.call = undefined;
    const waited = Promise.race([works, done]);
    try {
      await simulation.callObserver.settles(
        name,
        process,
        plan.waitMs + acquireTimeoutMs + slackMs,
        waited,
        acquireTimeoutMs,
      );
      await done;
      simulation.count("withLock: done");
    } catch (error) {
      if (!isSubmitLockError(error)) throw error;
      simulation.count(`withLock: ${error.code}`);
      simulation.note(() => `${process.machine.name}  withLock: ${error.message}`);
      if (error.code === "SUBMIT_LOCK_CONTENDED") {
        this.#answers.checkJustified(call, keyOf(plan.user), from);
      }
    }
    process.store.waiting.delete(keyOf(plan.user));
    await ended;
    for (const owner of simulation.ownersOf(call)) this.#over(owner);
  }

  async close(process: SimulatedProcess, timeoutMs: number): Promise<void> {
    const { callObserver, schedule } = this.#simulation;
    const { acquireTimeoutMs } = schedule.times;
    // A second call gives the promise of the first.
    process.closeTimeoutMs ??= timeoutMs;
    await callObserver.settles(
      `close of ${process.machine.name}`,
      process,
      process.closeTimeoutMs + 2 * acquireTimeoutMs,
      process.lock.close({ timeoutMs }),
      2 * acquireTimeoutMs,
    );
    process.lockIsGone = true;
  }

  #over(owner: Owner | undefined): void {
    if (owner !== undefined) owner.overAt ??= this.#simulation.loop.now;
  }
}

function keyOf(user: number): string {
  return `lock:${user}`;
}
