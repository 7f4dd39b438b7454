import { isSubmitLockError } from "../../../../src/errors.ts";
import type { ReleaseOutcome } from "../../../../src/lock/diagnostics.ts";
import type { SimulatedProcess, Simulation } from "../simulation.ts";
import { slackMs } from "./key-observer.ts";
import type { Owner } from "./owners.ts";

/** What is asked of the answers that callers get: whether they are true, and whether a better one was possible. */
export class AnswerChecks {
  readonly #simulation: Simulation;

  constructor(simulation: Simulation) {
    this.#simulation = simulation;
  }

  checkJustified(call: number, key: string, from: number): void {
    const { owners, verdict } = this.#simulation;
    const attempt = this.#simulation.ownersOf(call).at(-1)?.attempt;
    const other = owners
      .tenures(key)
      .some(({ owner, to }) => owner.attempt !== attempt && (to === undefined || to >= from));
    if (other) return;
    verdict.broken("justified", `${key} was called contended, and nobody else was there`);
  }

  checkResolved(
    process: SimulatedProcess,
    from: number,
    cause: Error,
    owner: Owner | undefined,
  ): void {
    if (process.closeTimeoutMs !== undefined || process.client.status === "end") return;
    if (isSubmitLockError(cause) && cause.code === "SUBMIT_LOCK_MISCONFIGURED") return;
    const { loop, schedule, verdict } = this.#simulation;
    const { acquireTimeoutMs, commandTimeoutMs } = schedule.times;
    const roundTripMs = 2 * process.longestLatencyMs;
    // Silence, a second connection in three round trips, and a copy on it, with its backoff.
    const neededMs = 1.01 * commandTimeoutMs + 2 * (4 * roundTripMs) + slackMs;
    if (acquireTimeoutMs < neededMs) return;
    if (!process.health.wasResolvable(from, loop.now)) return;
    verdict.broken("resolved", `${owner?.name} is unavailable: ${cause.message}`);
  }

  checkTruthful(owner: Owner, outcome: ReleaseOutcome, validUntil: number, began: number): void {
    const { server, verdict, owners } = this.#simulation;
    // What a restarted server knew is not known to anybody.
    if (owner.serverLife !== server.life) return;
    const deleted = owner.deletedAt.some((at) => at >= began);
    const isAtKey = server.look(owner.key)?.value === owner.id;
    // It may have run out while the release was on its way: no one can tell that from a deletion.
    const ranOut = !isAtKey && owners.wasAtKey(owner, began);
    if (outcome === "released" && !deleted && !ranOut) {
      verdict.broken("truthful", `${owner.name} was called released, and its key was not deleted`);
    }
    const isGone = outcome === "gone" || outcome === "foreign";
    if (isGone && deleted && this.#simulation.loop.now < validUntil) {
      verdict.broken("truthful", `${owner.name} was called ${outcome}, and its key was deleted`);
    }
  }
}
