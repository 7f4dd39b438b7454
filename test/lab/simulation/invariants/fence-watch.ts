import type { SimulatedProcess } from "../process.ts";
import type { World } from "../world.ts";
import type { Owner } from "./owners.ts";

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
export class FenceWatch {
  readonly #highest = new Map<string, Highest>();
  /** What each process had heard of clocks and tokens, and when: both rise. */
  readonly #heard = new Map<
    SimulatedProcess,
    { readonly at: number; readonly microseconds: number }[]
  >();
  readonly #world: World;

  constructor(world: World) {
    this.#world = world;
  }

  /** An answer has brought a process a clock or a token. */
  heard(process: SimulatedProcess, microseconds: number): void {
    const heard = this.#heard.get(process) ?? [];
    this.#heard.set(process, heard);
    const at = this.#world.loop.now;
    if (microseconds > (heard.at(-1)?.microseconds ?? 0)) heard.push({ at, microseconds });
  }

  taken(key: string, owner: Owner, token: number, sentAt: number): void {
    // A copy that comes late has an older floor, and makes no lease.
    if (owner.overAt !== undefined) return;
    const { life, setBackMs } = this.#world.server;
    const before = this.#highest.get(key);
    if (before?.serverLife === life && before.token >= token) {
      const isLimit =
        before.owner === owner ||
        // No script takes less than a microsecond, but where it takes no time at all.
        (before.token === token && before.at === this.#world.loop.now) ||
        (setBackMs > 0 && this.#heardBefore(owner, sentAt) < before.token) ||
        // No floor counts that is so far ahead.
        setBackMs > 60_000;
      if (!isLimit) {
        this.#world.broken(
          "fenced",
          `${owner.name} got token ${token} for ${key}, after ${before.token} of ${before.owner.name}`,
        );
      }
      return;
    }
    this.#highest.set(key, { token, owner, serverLife: life, at: this.#world.loop.now });
  }

  #heardBefore({ process }: Owner, time: number): number {
    const heard = process && this.#heard.get(process);
    return heard?.findLast(({ at }) => at < time)?.microseconds ?? 0;
  }
}
