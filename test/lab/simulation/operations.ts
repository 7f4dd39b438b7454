import { Attempts } from "./attempts.ts";
import { Person } from "./person.ts";
import type { OperationPlan } from "./schedule.ts";
import type { SimulatedProcess, World } from "./world.ts";

/** Lets the processes do with their locks what a schedule has planned, each thing at its time. */
export class Operations {
  readonly #world: World;
  readonly #attempts: Attempts;
  readonly #person: Person;
  readonly #underWay = new Map<SimulatedProcess, number>();
  #oldLocks = 0;

  constructor(world: World) {
    this.#world = world;
    this.#attempts = new Attempts(world);
    this.#person = new Person(world);
    world.schedule.operations.forEach((plan) => {
      // Not before the connections could have come up.
      this.#plan(plan, 15 + plan.atMs);
    });
  }

  /** What a dead process was about is over as well. */
  get areOver(): boolean {
    return [...this.#underWay].every(([{ machine }, count]) => count === 0 || machine.isDead);
  }

  #plan(plan: OperationPlan, atMs: number): void {
    const process = this.#world.processOf(plan.process);
    const count = (by: number) =>
      this.#underWay.set(process, (this.#underWay.get(process) ?? 0) + by);
    count(1);
    process.machine.after(atMs, () => {
      void this.#do(plan, process).finally(() => count(-1));
    });
  }

  async #do(plan: OperationPlan, process: SimulatedProcess): Promise<void> {
    this.#world.count(`operation: ${plan.kind}`);
    switch (plan.kind) {
      case "acquire":
      case "submit":
        return await this.#attempts.acquire(plan, process);
      case "lookUp":
        return await this.#attempts.lookUp(plan, process);
      case "withLock":
        return await this.#attempts.withLock(plan, process);
      case "close":
        return await this.close(process, plan.workMs);
      case "free":
        return await this.#person.free(plan, process);
      case "oldLock":
        return this.#oldLock(process.lock.keyFor(String(plan.user)));
    }
  }

  /** A `SETNX` of another program, whose `EXPIRE` never came. */
  #oldLock(key: string): void {
    const { server } = this.#world;
    if (server.look(key) === undefined) server.keys.set(key, `old ${this.#oldLocks++}`, undefined);
  }

  async close(process: SimulatedProcess, timeoutMs: number): Promise<void> {
    const { callWatch, schedule } = this.#world;
    const { acquireTimeoutMs } = schedule.times;
    // A second call gives the promise of the first.
    process.closeTimeoutMs ??= timeoutMs;
    await callWatch.settles(
      `close of ${process.machine.name}`,
      process,
      process.closeTimeoutMs + 2 * acquireTimeoutMs,
      process.lock.close({ timeoutMs }),
      2 * acquireTimeoutMs,
    );
    process.lockIsGone = true;
  }
}
