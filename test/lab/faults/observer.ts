import { setTimeout as sleep } from "node:timers/promises";
import { ioredis6, untilReady } from "../../support/clients.ts";
import type { Ledger } from "../shop/ledger.ts";

const everyMs = 4;

/** One look at the key, and at the record. */
interface Sight {
  readonly value: string | null;
  readonly isRecorded: boolean;
  readonly askedAt: number;
  readonly answeredAt: number;
}

/** Whose values count as whose. */
export interface Attribution {
  readonly ledger: Ledger;
  /** When the caller's attempt was over. */
  readonly callEndedAt: number;
  /** Whether the caller sent this value; it may never have been told that it holds the lock. */
  readonly isCallers: (value: string) => boolean;
}

/** How long a rival's own release may take: there are hundreds of them in a cell. */
const rivalGraceMs = 100;

/** Watches one key, and the record beside it, on a healthy connection of its own. */
export class Observer {
  readonly #keys: readonly string[];
  readonly #redis: ReturnType<typeof ioredis6.connect>;
  readonly #sights: Sight[] = [];
  #stopped = false;
  #seen: (() => void) | undefined;
  /** Resolves when the key is there for the first time. */
  readonly firstSeen: Promise<void>;
  #watching: Promise<void> | undefined;

  constructor({ port, db }: { port: number; db: number }, key: string, recordKey?: string) {
    this.#keys = recordKey === undefined ? [key] : [key, recordKey];
    this.#redis = ioredis6.connect(port, { enableReadyCheck: false, db });
    this.firstSeen = new Promise((resolve) => {
      this.#seen = resolve;
    });
  }

  async start(): Promise<void> {
    await untilReady(this.#redis);
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
      const found = await this.#redis.mget(...this.#keys).catch(() => undefined);
      const answeredAt = performance.now();
      if (found !== undefined) {
        const [held = null, record = null] = found;
        // This package writes more behind the owner id; its neighbours write nothing else.
        const value = held?.replace(/^([0-9a-f-]{36}):.*$/, "$1") ?? null;
        this.#sights.push({ value, isRecorded: record !== null, askedAt, answeredAt });
        if (held !== null) this.#seen?.();
      }
      await sleep(everyMs);
    }
  }

  /** Whether the key holds, as last seen, an owner id of the caller after its attempt was over. */
  isOrphanNow(attribution: Attribution): boolean {
    const last = this.#sights.at(-1);
    return last !== undefined && isOrphan(last, attribution);
  }

  /** How long in sum the key held an owner id of the caller after its attempt was over. */
  orphanMs(attribution: Attribution): number {
    return this.#sum((sight) => isOrphan(sight, attribution));
  }

  /** The same for rivals. */
  rivalOrphanMs({ ledger, callEndedAt, isCallers }: Attribution): number {
    return this.#sum(({ value, askedAt }) => {
      if (value === null || isCallers(value)) return false;
      const over = ledger.of(value)?.until ?? callEndedAt;
      return askedAt > over + rivalGraceMs;
    });
  }

  #sum(counts: (sight: Sight) => boolean): number {
    let sum = 0;
    this.#sights.forEach((sight, at) => {
      if (!counts(sight)) return;
      const next = this.#sights[at + 1]?.askedAt ?? sight.answeredAt + everyMs;
      // While a server is paused the question waits, not the key: that time is not counted.
      sum += next - sight.answeredAt + Math.min(sight.answeredAt - sight.askedAt, everyMs);
    });
    return sum;
  }

  /** How often neither the owner id nor a record was there, since the owner id was, until a time. */
  gaps(ownerId: string, until: number): number {
    const first = this.#sights.findIndex(({ value }) => value === ownerId);
    const watched = first < 0 ? [] : this.#sights.slice(first);
    return watched.filter(
      ({ value, isRecorded, answeredAt }) => value !== ownerId && !isRecorded && answeredAt < until,
    ).length;
  }

  /** Whether the record was there when it was last looked for. */
  get isRecordedNow(): boolean {
    return this.#sights.at(-1)?.isRecorded === true;
  }

  /** When an orphan was last seen, if ever. */
  lastOrphanAt(attribution: Attribution): number | undefined {
    return this.#sights.findLast((sight) => isOrphan(sight, attribution))?.answeredAt;
  }
}

function isOrphan({ value, askedAt }: Sight, attribution: Attribution): boolean {
  if (value === null || !attribution.isCallers(value)) return false;
  return askedAt > (attribution.ledger.of(value)?.until ?? attribution.callEndedAt);
}
