import { isSubmitLockError } from "../../../src/errors.ts";
import type { FreeResult } from "../../../src/lock/on-call.ts";
import { longestTtlMs } from "../../../src/lock/store.ts";
import { slackMs } from "./invariants/key-watch.ts";
import type { OperationPlan } from "./schedule.ts";
import type { SimulatedProcess, World } from "./world.ts";

/** Somebody who looks at a user's lock, thinks for a while, and then takes it away. */
export class Person {
  readonly #world: World;

  constructor(world: World) {
    this.#world = world;
  }

  /** Whoever was seen is freed, and nobody who has come since. */
  async free({ user, workMs }: OperationPlan, process: SimulatedProcess): Promise<void> {
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
    if (result !== undefined) this.#check(result);
  }

  /** Rule 19: the user is free within the life of a lease. */
  #check(result: FreeResult): void {
    const { schedule, server } = this.#world;
    // A clock that is set back lengthens every life, and a tombstone's by no more than this.
    const mostMs = server.setBackMs === 0 ? schedule.times.ttlMs : longestTtlMs;
    if (result.outcome !== "freed" || result.freeInMs <= mostMs) return;
    this.#world.verdict.broken("freed", `a user is not free for ${result.freeInMs} ms`);
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
      const boundMs = acquireTimeoutMs + slackMs;
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
