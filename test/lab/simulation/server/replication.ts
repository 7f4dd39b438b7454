import type { Machine } from "../time/event-loop.ts";
import type { Entry } from "./simulated-redis.ts";

/** What a key holds from now on; `undefined` for nothing. */
type Change = readonly [key: string, entry: Entry | undefined];

/** A `WAIT` that is not answered yet. */
interface Waiting {
  readonly offset: number;
  answer(): void;
}

/** An idle server looks ten times a second for blocked clients whose time is over. */
export const longestOverdueMs = 100;

/**
 * A master's writes on their way to its one replica, in their order, each as late as the last; and
 * whoever waits until they are there. A replica that is paused gets none of them.
 */
export class Replication {
  /** Of the master's last write. */
  offset = 0;
  readonly #master: Machine;
  readonly #replica: Machine;
  readonly #lagMs: number;
  /** What has reached the replica: it does not let keys expire by itself. */
  #keys = new Map<string, Entry>();
  /** The last write that the master knows to have reached it. */
  #acknowledged = 0;
  /** Whatever was on its way before a change of masters never arrives. */
  #term = 0;
  #changes: Change[] | undefined;
  #waiting: Waiting[] = [];

  constructor(master: Machine, replica: Machine, lagMs: number) {
    this.#master = master;
    this.#replica = replica;
    this.#lagMs = lagMs;
  }

  changed(key: string, entry: Entry | undefined): void {
    // The master's own entry is changed in its place.
    const change: Change = [key, entry && { ...entry }];
    if (this.#changes === undefined) this.#send([change]);
    else this.#changes.push(change);
  }

  /** What a script changes arrives all at once. */
  together<Result>(run: () => Result): Result {
    const changes: Change[] = [];
    this.#changes = changes;
    try {
      return run();
    } finally {
      this.#changes = undefined;
      if (changes.length > 0) this.#send(changes);
    }
  }

  /**
   * WAIT.
   *
   * @param offset the last write of the connection that waits.
   * @param overdueMs how late it is answered where nobody confirms.
   * @param answer called once, with the number of replicas; never after a change of masters.
   */
  wait(
    offset: number,
    replicas: number,
    forMs: number,
    overdueMs: number,
    answer: (count: number) => void,
  ): void {
    const count = () => (this.#acknowledged >= offset ? 1 : 0);
    if (count() >= replicas) {
      answer(count());
      return;
    }
    const term = this.#term;
    const over = this.#master.after(forMs + overdueMs, () => {
      if (term === this.#term) waiting.answer();
    });
    const waiting: Waiting = {
      offset,
      answer: () => {
        over.cancelled = true;
        this.#waiting = this.#waiting.filter((one) => one !== waiting);
        answer(count());
      },
    };
    this.#waiting.push(waiting);
  }

  /** @returns what the replica has, which is the master from now on; another one follows it. */
  takeOver(): Map<string, Entry> {
    this.#cut();
    return new Map([...this.#keys].map(([key, entry]) => [key, { ...entry }]));
  }

  /** Both have lost their data. */
  clear(): void {
    this.#cut();
    this.#keys.clear();
  }

  #cut(): void {
    this.#term++;
    this.#waiting = [];
    this.#acknowledged = this.offset;
  }

  #send(changes: readonly Change[]): void {
    const offset = ++this.offset;
    const term = this.#term;
    this.#replica.after(this.#lagMs, () => {
      if (term !== this.#term) return;
      for (const [key, entry] of changes) {
        if (entry === undefined) this.#keys.delete(key);
        else this.#keys.set(key, entry);
      }
      this.#master.after(this.#lagMs, () => {
        if (term === this.#term) this.#confirmed(offset);
      });
    });
  }

  #confirmed(offset: number): void {
    this.#acknowledged = offset;
    for (const waiting of this.#waiting) {
      if (waiting.offset <= offset) waiting.answer();
    }
  }
}
