import { subscribe, unsubscribe } from "node:diagnostics_channel";
import type { AcquireMessage, LostMessage, ReleaseMessage } from "../../src/index.ts";

/** Notes what the lock publishes about one key. */
export class LockObserver {
  readonly acquired: AcquireMessage[] = [];
  readonly contended: AcquireMessage[] = [];
  readonly releases: ReleaseMessage[] = [];
  readonly lost: LostMessage[] = [];
  readonly #stop: () => void;

  constructor(keyStart: string) {
    const of = <M extends { key: string }>(to: M[], wanted: (message: M) => boolean) => {
      return (message: unknown) => {
        const published = message as M;
        if (published.key.startsWith(keyStart) && wanted(published)) to.push(published);
      };
    };
    const listeners = {
      "submit-lock:acquire": (message: unknown) => {
        of(this.acquired, ({ outcome }) => outcome === "acquired")(message);
        of(this.contended, ({ outcome }) => outcome === "contended")(message);
      },
      "submit-lock:release": of(this.releases, () => true),
      "submit-lock:lost": of(this.lost, () => true),
    };
    for (const [name, listener] of Object.entries(listeners)) subscribe(name, listener);
    this.#stop = () => {
      for (const [name, listener] of Object.entries(listeners)) unsubscribe(name, listener);
    };
  }

  stop(): void {
    this.#stop();
  }
}

/** Counts the handlers of one user that run, and notices when two run at once. */
export class WorkObserver {
  running = 0;
  started = 0;
  overlaps = 0;

  begin(): () => void {
    this.started++;
    this.running++;
    if (this.running > 1) this.overlaps++;
    let over = false;
    return () => {
      if (!over) this.running--;
      over = true;
    };
  }
}
