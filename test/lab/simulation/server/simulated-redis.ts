import type { EventLoop } from "../time/event-loop.ts";
import { Machine } from "../time/machine.ts";
import { type Entry, type KeyListener, Keys } from "./keys.ts";
import { ReplyError, runScript } from "./script-runner.ts";

/** A Redis server in virtual time: its keys, its clock, and what may happen to it. */
export class SimulatedRedis {
  readonly machine: Machine;
  readonly keys: Keys;
  /** Counts restarts: whatever was known of an earlier life is lost. */
  life = 0;
  #downUntil = 0;
  #refusal: { readonly until: number; readonly text: string } | undefined;
  readonly #loop: EventLoop;
  /** Keys run out while the server is paused as well: nobody can see them until it goes on. */
  readonly #physics: Machine;

  constructor(loop: EventLoop, rate: number, listener: KeyListener) {
    this.#loop = loop;
    this.machine = new Machine(loop, "Redis", { rate });
    this.#physics = new Machine(loop, "physics");
    this.keys = new Keys({
      ...bound(listener),
      set: (key, value, expiresAt) => {
        listener.set(key, value, expiresAt);
        this.#watchExpiry(key, expiresAt);
      },
      lengthened: (key, value, expiresAt) => {
        listener.lengthened(key, value, expiresAt);
        this.#watchExpiry(key, expiresAt);
      },
    });
  }

  get nowMs(): number {
    return Math.floor(this.machine.wallMs());
  }

  get isDown(): boolean {
    return this.#downUntil > this.#loop.now;
  }

  get isWell(): boolean {
    return !this.isDown && !this.machine.isPaused && this.#refusal === undefined;
  }

  look(key: string): Entry | undefined {
    return this.keys.live(key, this.nowMs);
  }

  /** The right time at which a key that expires then is gone. */
  goneAt(expiresAt: number): number {
    return this.machine.whenWallShows(expiresAt + 1);
  }

  evaluate(
    script: string,
    keyNames: readonly string[],
    args: readonly (string | number)[],
  ): unknown {
    if (this.#refusal !== undefined) throw new ReplyError(this.#refusal.text);
    return runScript(this.keys, this.machine.wallMs(), script, keyNames, args);
  }

  restart(downMs: number): void {
    this.life++;
    this.keys.clear();
    this.#downUntil = Math.max(this.#downUntil, this.#loop.now + downMs);
  }

  /** Answers every script with an error, and executes none. */
  refuse(text: string, forMs: number): void {
    const refusal = { until: this.#loop.now + forMs, text };
    this.#refusal = refusal;
    this.#physics.after(forMs, () => {
      if (this.#refusal === refusal) this.#refusal = undefined;
    });
  }

  #watchExpiry(key: string, expiresAt: number | undefined): void {
    if (expiresAt === undefined) return;
    this.#physics.after(this.goneAt(expiresAt) - this.#loop.now + 0.001, () => this.look(key));
  }
}

function bound(listener: KeyListener): KeyListener {
  return {
    set: listener.set.bind(listener),
    lengthened: listener.lengthened.bind(listener),
    deleted: listener.deleted.bind(listener),
    expired: listener.expired.bind(listener),
  };
}
