import { once } from "node:events";
import { setTimeout as sleep } from "node:timers/promises";
import { ioredis6 } from "../support/clients.ts";
import type { Ledger } from "./ledger.ts";

const everyMs = 4;

/** One look at the key. */
interface Sight {
  readonly value: string | null;
  readonly askedAt: number;
  readonly answeredAt: number;
}

/** Whose values count as whose. */
export interface Attribution {
  readonly ledger: Ledger;
  /** When the caller's attempt was over; a value that nobody was ever told to hold is the caller's. */
  readonly callEndedAt: number;
}

/** How long a rival's own release may take before its key counts as an orphan as well. */
const rivalGraceMs = 100;

/** Watches one key on a healthy connection of its own. */
export class Observer {
  readonly #key: string;
  readonly #redis: ReturnType<typeof ioredis6.connect>;
  readonly #sights: Sight[] = [];
  #stopped = false;
  #seen: (() => void) | undefined;
  /** Resolves when the key is there for the first time. */
  readonly firstSeen: Promise<void>;
  #watching: Promise<void> | undefined;

  constructor(port: number, key: string) {
    this.#key = key;
    this.#redis = ioredis6.connect(port, { enableReadyCheck: false });
    this.firstSeen = new Promise((resolve) => {
      this.#seen = resolve;
    });
  }

  async start(): Promise<void> {
    if (this.#redis.status !== "ready") await once(this.#redis, "ready");
    this.#watching = this.#watch();
  }

  async stop(): Promise<void> {
    this.#stopped = true;
    await this.#watching;
    this.#redis.disconnect();
  }

  async #watch(): Promise<void> {
    while (!this.#stopped) {
      const askedAt = performance.now();
      // A server that is loading or cut off from its master answers with an error: no sight.
      const value = await this.#redis.get(this.#key).catch(() => undefined);
      const answeredAt = performance.now();
      if (value !== undefined) this.#sights.push({ value, askedAt, answeredAt });
      if (value) this.#seen?.();
      await sleep(everyMs);
    }
  }

  /** Whether the key holds, as last seen, the owner id of an attempt that is over. */
  isOrphanNow(attribution: Attribution): boolean {
    const last = this.#sights.at(-1);
    return last !== undefined && isOrphan(last, attribution);
  }

  /** How long in sum the key held the owner id of an attempt that was over. */
  orphanMs(attribution: Attribution): number {
    let sum = 0;
    this.#sights.forEach((sight, at) => {
      if (!isOrphan(sight, attribution)) return;
      const next = this.#sights[at + 1]?.askedAt ?? sight.answeredAt + everyMs;
      // While a server is paused the question waits, not the key: that time is not counted.
      sum += next - sight.answeredAt + Math.min(sight.answeredAt - sight.askedAt, everyMs);
    });
    return sum;
  }

  /** When an orphan was last seen, if ever. */
  lastOrphanAt(attribution: Attribution): number | undefined {
    return this.#sights.findLast((sight) => isOrphan(sight, attribution))?.answeredAt;
  }
}

function isOrphan({ value, askedAt }: Sight, { ledger, callEndedAt }: Attribution): boolean {
  if (value === null) return false;
  const holding = ledger.of(value);
  if (holding === undefined) return askedAt > callEndedAt;
  return askedAt > holding.until + (holding.who === "caller" ? 0 : rivalGraceMs);
}
