import { isSubmitLockError } from "../../../src/errors.ts";
import type { FreeResult } from "../../../src/lock/store.ts";
import { longestTtlMs } from "../../../src/validation.ts";
import { Attempts, identityOf } from "./attempts.ts";
import { slackMs } from "./invariants/invariants.ts";
import type { OperationPlan } from "./schedule.ts";
import type { SimulatedProcess, World } from "./world.ts";

/** Lets the processes do with their locks what a schedule has planned, each thing at its time. */
export class Operations {
  readonly #world: World;
  readonly #attempts: Attempts;
  readonly #underWay = new Map<SimulatedProcess, number>();
  #oldLocks = 0;

  constructor(world: World) {
    this.#world = world;
    this.#attempts = new Attempts(world);
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
        return await this.#free(plan, process);
      case "forget":
        return await this.#forget(plan, process);
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

  /** A person looks at a lock, thinks, and takes it away: whoever was seen is freed, and nobody who has come since. */
  async #free({ user, workMs }: OperationPlan, process: SimulatedProcess): Promise<void> {
    const found = await this.#asks("inspect", process, () => process.lock.inspect(String(user)));
    this.#tell(process, `sees ${found?.state}`);
    if (found === undefined || found.state === "free") return;
    const { id, state } = found;
    this.#world.count(`free: of ${state}`);
    await new Promise<void>((resolve) => process.machine.after(workMs, resolve));
    const reason = "a customer called";
    const result = await this.#asks("free", process, () =>
      process.lock.free(String(user), { id, by: "support", reason }),
    );
    this.#tell(process, `frees ${id}: ${result?.outcome}`);
    this.#world.count(`free: ${result?.outcome ?? "unavailable"}`);
    if (result !== undefined) this.#checkFreed(result);
  }

  /** A person deletes the answer of a submission: its next retry runs (rule 26). */
  async #forget(plan: OperationPlan, process: SimulatedProcess): Promise<void> {
    const user = String(plan.user);
    const { id } = identityOf(user, plan).identity;
    const why = { by: "support", reason: "it was wrong" };
    const result = await this.#asks("forget", process, () =>
      process.lock.forget(user, { id, ...why }),
    );
    this.#tell(process, `forgets ${id}: ${result?.outcome}`);
    this.#world.count(`forget: ${result?.outcome ?? "unavailable"}`);
  }

  /** Rule 19: the user is free within the life of a lease. */
  #checkFreed(result: FreeResult): void {
    const { schedule, server } = this.#world;
    // A clock that is set back lengthens every life, and a tombstone's by no more than this.
    const mostMs = server.setBackMs === 0 ? schedule.times.ttlMs : longestTtlMs;
    if (result.outcome !== "freed" || result.freeInMs <= mostMs) return;
    this.#world.broken("freed", `a user is not free for ${result.freeInMs} ms`);
  }

  async #asks<Result>(
    what: string,
    process: SimulatedProcess,
    ask: () => Promise<Result>,
  ): Promise<Result | undefined> {
    const { acquireTimeoutMs } = this.#world.schedule.times;
    const name = `${what} of ${process.machine.name}`;
    try {
      const asked = ask();
      // A look, and what follows it.
      const boundMs = (what === "forget" ? 2 : 1) * acquireTimeoutMs + slackMs;
      return await this.#world.callWatch.settles(name, process, boundMs, asked, slackMs);
    } catch (error) {
      if (!isSubmitLockError(error)) throw error;
      return undefined;
    }
  }

  #tell({ machine }: SimulatedProcess, what: string): void {
    this.#world.note(() => `${machine.name}  a person ${what}`);
  }
}
