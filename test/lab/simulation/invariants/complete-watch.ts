import type { Participant } from "../participant.ts";
import type { SimulatedRedis } from "../server/simulated-redis.ts";
import type { EventLoop } from "../time/event-loop.ts";
import type { Owner } from "./owners.ts";
import type { RecordWatch } from "./record-watch.ts";
import type { Verdict } from "./verdict.ts";

interface Completing {
  readonly owner: Owner;
  readonly participant: Participant;
  readonly record: string;
  /** Until when the lease was valid when its complete began. */
  readonly validUntil: number;
}

/**
 * Rule 16: from the complete on, for as long as the lease was valid and the record would last, either
 * the lock or a record is there. Looked at after every step.
 */
export class CompleteWatch {
  readonly #completing = new Set<Completing>();
  readonly #loop: EventLoop;
  readonly #server: SimulatedRedis;
  readonly #verdict: Verdict;
  readonly #records: RecordWatch;

  constructor(loop: EventLoop, server: SimulatedRedis, verdict: Verdict, records: RecordWatch) {
    this.#loop = loop;
    this.#server = server;
    this.#verdict = verdict;
    this.#records = records;
  }

  begin(owner: Owner, participant: Participant, record: string, remainingMs: number): void {
    if (remainingMs <= 0) return;
    const validUntil = this.#loop.now + remainingMs / participant.machine.rate;
    this.#completing.add({ owner, participant, record, validUntil });
  }

  check(): void {
    for (const each of this.#completing) {
      const { owner, record, validUntil } = each;
      const isOver =
        this.#loop.now >= Math.min(validUntil, owner.securedUntil ?? validUntil) ||
        this.#server.nowMs >= Number(owner.recordUntil) ||
        owner.serverLife !== this.#server.life ||
        this.#records.standing(record) !== undefined;
      if (isOver) this.#completing.delete(each);
      else if (!this.#isLocked(owner)) {
        this.#verdict.broken(
          "gap",
          `${owner.name} is being completed, and there is neither its lock nor a record`,
        );
      }
    }
  }

  #isLocked({ key, id }: Owner): boolean {
    const value = String(this.#server.look(key)?.value);
    return value.startsWith(id) || value.startsWith(`freed:${id}:`);
  }
}
