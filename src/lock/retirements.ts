import type { Alarms } from "./alarms.ts";
import type { AskedCommand } from "./diagnostics.ts";
import { type Released, Retirement, type RetirementKeeper } from "./retirement.ts";
import type { AcquireReply, Copy, LockStore, LockTimes } from "./store.ts";

const nobody: Released = () => {};

/** The owner ids of one lock that are being given up. */
export class Retirements implements RetirementKeeper {
  readonly store: LockStore;
  readonly times: LockTimes;
  readonly alarms: Alarms;
  /** How many are under way that could still succeed. */
  #hopeful = 0;
  #idle: (() => void) | undefined;

  constructor(store: LockStore, times: LockTimes, alarms: Alarms) {
    this.store = store;
    this.times = times;
    this.alarms = alarms;
  }

  /**
   * @param validUntil until when, by the monotonic clock, the key is ours for certain.
   * @param released called once, within `acquireTimeoutMs`.
   */
  begin(
    command: AskedCommand,
    openCopies: readonly Copy<AcquireReply>[],
    validUntil: number,
    released: Released = nobody,
  ): void {
    this.#hopeful++;
    const retirement = new Retirement(this, command, openCopies, validUntil, released);
    retirement.try(retirement.startedAt);
  }

  /** Resolves when nothing is under way that could still succeed. */
  idle(): Promise<void> {
    return new Promise((resolve) => {
      this.#idle = resolve;
      this.#checkIdle();
    });
  }

  /** One of them has ended, or is of no hope any more. */
  left(): void {
    this.#hopeful--;
    this.#checkIdle();
  }

  #checkIdle(): void {
    if (this.#hopeful === 0) this.#idle?.();
  }
}
