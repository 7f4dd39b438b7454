import type { TimerWheel } from "../timer-wheel.ts";
import type { CallerCommand } from "./diagnostics.ts";
import { type Released, Retirement, type RetirementKeeper } from "./release.ts";
import type { AcquireReply, LockRequest, LockStore, LockTimes } from "./store.ts";

const nobody: Released = () => {};

/** The owner ids of one lock that are being given up. */
export class Retirements implements RetirementKeeper {
  readonly store: LockStore;
  readonly times: LockTimes;
  readonly timers: TimerWheel;
  /** How many are under way that could still succeed. */
  #hopeful = 0;
  #idle: (() => void) | undefined;

  constructor(store: LockStore, times: LockTimes, timers: TimerWheel) {
    this.store = store;
    this.times = times;
    this.timers = timers;
  }

  /**
   * @param validUntil until when, by the monotonic clock, the key is ours for certain.
   * @param released called once, within `acquireTimeoutMs`.
   */
  begin(
    command: CallerCommand,
    inFlight: readonly LockRequest<AcquireReply>[],
    validUntil: number,
    released: Released = nobody,
  ): void {
    this.#hopeful++;
    const retirement = new Retirement(this, command, inFlight, validUntil, released);
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
