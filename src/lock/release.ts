import { publish, type ReleaseOutcome, type RetireMessage, retireChannel } from "./channels.ts";
import type { CallerCommand, InFlight, LockRuntime } from "./runtime.ts";
import type { LockCommand, NoAnswer, OwnedReply, ReleaseRequest } from "./store.ts";
import { type OnReport, UntilAnswered } from "./until-answered.ts";

/** Called once, within `acquireTimeoutMs`: the outcome, and why it is unconfirmed. */
export type OnReleased = OnReport<ReleaseOutcome>;

const ignored: OnReleased = () => {};

/**
 * Gives an owner id up for good, once: deletes the key if it holds the owner id. Only `complete` lets
 * go of a lock as well, for the record that takes its place.
 *
 * @param inFlight the requests of its acquire that may still take effect.
 * @param validUntil the monotonic time before which only we can have deleted the key; 0 if unknown.
 * @param cooldownUntilMs the end of a cooldown by the store's clock; 0 for none.
 */
export function release(
  runtime: LockRuntime,
  command: CallerCommand,
  inFlight: InFlight,
  validUntil: number,
  onReleased: OnReleased = ignored,
  cooldownUntilMs = 0,
): void {
  runtime.releases.add();
  const releasing = new Releasing(runtime, command, inFlight, validUntil, onReleased);
  releasing.cooldownUntilMs = cooldownUntilMs;
  releasing.send(releasing.startedAt);
}

/** One compare-and-delete. */
class Request implements ReleaseRequest {
  readonly #releasing: Releasing;
  /** The latest deadline of the requests that were in flight when this one was sent. */
  readonly inFlightUntilMs: number;
  readonly cooldownUntilMs: number;
  deadlineMs: number | undefined;

  constructor(releasing: Releasing, inFlightUntilMs: number, cooldownUntilMs: number) {
    this.#releasing = releasing;
    this.inFlightUntilMs = inFlightUntilMs;
    this.cooldownUntilMs = cooldownUntilMs;
  }

  get command(): LockCommand {
    return this.#releasing.command;
  }

  answer(reply: OwnedReply): void {
    this.#releasing.answered(this, reply);
  }
}

/**
 * A release, which becomes a retire where requests of the acquire are in flight:
 *
 * ```
 * answered ── store time after every deadline ──▶ final
 *     │ ───── a request may come later ─────────▶ sent again after 50 ms (retiring)
 * given up ── after 2 × acquireTimeoutMs + ttlMs ──▶ abandoned: the key runs out by itself
 * ```
 */
class Releasing extends UntilAnswered<OwnedReply, ReleaseOutcome> {
  readonly #inFlight: InFlight;
  /** Whether any request was in flight at the beginning: then this is more than a plain release. */
  readonly #retires: boolean;
  readonly #validUntil: number;
  cooldownUntilMs = 0;

  constructor(
    runtime: LockRuntime,
    command: CallerCommand,
    inFlight: InFlight,
    validUntil: number,
    onReleased: OnReleased,
  ) {
    const { acquireTimeoutMs, ttlMs } = runtime.times;
    const patience = {
      reportAfterMs: acquireTimeoutMs,
      giveUpAfterMs: 2 * acquireTimeoutMs + ttlMs,
    };
    super(runtime, command, "release", runtime.timers, patience, onReleased);
    this.#inFlight = inFlight;
    this.#retires = !inFlight.isEmpty;
    this.#validUntil = validUntil;
  }

  protected override request(): Request {
    // Read before the send: a request that is resolved afterwards was in flight during this try.
    return new Request(this, this.#inFlight.latestDeadlineMs, this.cooldownUntilMs);
  }

  protected override executed(request: Request, reply: Exclude<OwnedReply, NoAnswer>): void {
    this.report(this.#outcomeOf(reply.kind));
    // Rule 19: a retire never sets a cooldown.
    this.cooldownUntilMs = 0;
    // Rule 6: a request that the store executes after its deadline takes no effect.
    if (reply.storeTimeMs > request.inFlightUntilMs) this.#end("final");
  }

  protected override givenUp(): void {
    this.#end("abandoned");
  }

  /** Waiting does not help, and `close` does not wait for it. */
  protected override denied(): void {
    this.report("unconfirmed");
    if (!this.hasEnded) this.runtime.releases.done();
  }

  #end(outcome: RetireMessage["outcome"]): void {
    if (!this.end()) return;
    this.report("unconfirmed");
    if (this.#retires && retireChannel.hasSubscribers) {
      const durationMs = performance.now() - this.startedAt;
      const { key, keyPrefix } = this.command;
      publish(retireChannel, this.command, { key, keyPrefix, outcome, durationMs });
    }
    if (!this.isDenied) this.runtime.releases.done();
  }

  /**
   * Rule 8: `gone` or `foreign` after a try whose answer was lost, while the lease would still be
   * valid: that try deleted the key, because nothing else could.
   */
  #outcomeOf(kind: "done" | "gone" | "freed" | "foreign"): ReleaseOutcome {
    if (kind === "done") return "released";
    // Rule 19: the tombstone has this owner id, so no earlier try has deleted the key.
    if (kind === "freed") return kind;
    return this.isAmbiguous && performance.now() < this.#validUntil ? "released" : kind;
  }
}
