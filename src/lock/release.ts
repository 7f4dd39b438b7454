import { publish, type ReleaseOutcome, type RetireMessage, retireChannel } from "./channels.ts";
import type { CallerCommand, InFlight, LockRuntime } from "./runtime.ts";
import type { NoAnswer, OwnedReply, ReleaseRequest } from "./store.ts";
import { type OnReport, UntilAnswered } from "./until-answered.ts";

/** Called once, within `acquireTimeoutMs`: the outcome, and why it is unconfirmed. */
export type OnReleased = OnReport<ReleaseOutcome>;

/** One request to delete the key if it holds the owner id. */
interface Request extends ReleaseRequest {
  /** The latest deadline of the requests that were in flight when this one was sent. */
  readonly inFlightUntilMs: number;
}

/**
 * A release: deletes the key, or leaves a cooldown in it, if it holds the owner id. With requests
 * of the acquire in flight it is a retire, which ends when none of them can take effect:
 *
 * ```
 * answered ── store time after every deadline ──▶ final
 *     │ ───── a request may come later ─────────▶ sent again after 50 ms (retiring)
 * given up ── after 2 × acquireTimeoutMs + ttlMs ──▶ abandoned: the key runs out by itself
 * ```
 */
export class Releasing extends UntilAnswered<Request, OwnedReply, ReleaseOutcome> {
  readonly #inFlight: InFlight;
  /** Whether a request of the acquire was in flight at the beginning: then this is a retire. */
  readonly #retires: boolean;
  readonly #validUntil: number;
  #cooldownUntilMs: number;

  /**
   * @param inFlight the requests of the acquire that may still take effect.
   * @param validUntil the monotonic time before which only this release deletes the key; or 0.
   * @param cooldownUntilMs the end of a cooldown by the store's clock; 0 for none.
   */
  constructor(
    runtime: LockRuntime,
    command: CallerCommand,
    inFlight: InFlight,
    validUntil = 0,
    onReleased?: OnReleased,
    cooldownUntilMs = 0,
  ) {
    const { timers, times } = runtime;
    const giveUpAfterMs = 2 * times.acquireTimeoutMs + times.ttlMs;
    super(runtime, command, "release", timers, times.acquireTimeoutMs, giveUpAfterMs, onReleased);
    this.#inFlight = inFlight;
    this.#retires = inFlight.first !== undefined;
    this.#validUntil = validUntil;
    this.#cooldownUntilMs = cooldownUntilMs;
  }

  begin(): void {
    this.runtime.releases.count++;
    this.send(this.startedAt);
  }

  protected override request(): Request {
    const request: Request = {
      command: this.command,
      deadlineMs: undefined,
      // Read before the send: a request that is resolved afterwards was in flight during this try.
      inFlightUntilMs: this.#inFlight.latestDeadlineMs,
      cooldownUntilMs: this.#cooldownUntilMs,
      answer: (reply) => this.answered(request, reply),
    };
    return request;
  }

  protected override executed(reply: Exclude<OwnedReply, NoAnswer>, request: Request): void {
    const { kind } = reply;
    // Rule 8: `gone` or `foreign` after a try whose answer was lost, while the lease would still be
    // valid: that try deleted the key, because nothing else could. Not with `freed` (rule 19): the
    // tombstone has this owner id, so no earlier try has deleted the key.
    const isOurDoing = kind !== "freed" && this.isAmbiguous && performance.now() < this.#validUntil;
    this.report(kind === "done" || isOurDoing ? "released" : kind);
    // Rule 19: requests after the first answer only retire, and a retire sets no cooldown.
    this.#cooldownUntilMs = 0;
    // Rule 6: a request that the store executes after its deadline takes no effect.
    if (reply.storeTimeMs > request.inFlightUntilMs) this.end("final");
  }

  /** Redis refuses for good: reports that at once, and `close` does not wait for this release. */
  protected override denied(): void {
    this.report("unconfirmed");
    this.runtime.releases.done();
  }

  protected override end(outcome: RetireMessage["outcome"] = "abandoned"): void {
    this.hasEnded = true;
    this.runtime.timers.clear(this);
    if (this.#retires && retireChannel.hasSubscribers) {
      const durationMs = performance.now() - this.startedAt;
      publish(retireChannel, this.command, { outcome, durationMs });
    }
    if (this.notBefore === 0) this.runtime.releases.done();
  }
}
