import type { CallerCommand } from "./diagnostics.ts";
import type { InFlight } from "./in-flight.ts";
import { type OnReleased, type ReleaseRuntime, release } from "./release.ts";

/** Rule 19: a lost lease's owner id is given up once, whoever asks for it first. */
export class Retirement {
  readonly #start: (onReleased: OnReleased) => void;
  #released: Promise<Parameters<OnReleased>> | undefined;

  constructor(runtime: ReleaseRuntime, command: CallerCommand, inFlight: InFlight) {
    this.#start = (onReleased) => release(runtime, command, inFlight, 0, onReleased);
  }

  begin(onReleased?: OnReleased): void {
    // Whatever that has deleted: a release that comes later finds the lease gone.
    const isGone = this.#released !== undefined;
    this.#released ??= new Promise((resolve) => this.#start((...came) => resolve(came)));
    if (onReleased === undefined) return;
    void this.#released.then(([outcome, cause]) =>
      onReleased(isGone && outcome === "released" ? "gone" : outcome, cause),
    );
  }
}
