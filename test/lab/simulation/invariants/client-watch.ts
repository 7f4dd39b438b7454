import type { SimulatedClient } from "../network/simulated-client.ts";
import type { ClientWatcher, WrittenCopy } from "../network/surroundings.ts";
import type { Reporter } from "../report.ts";
import { nameOf } from "../script-names.ts";
import type { Machine } from "../time/machine.ts";
import type { Executions } from "./executions.ts";
import type { Health } from "./health.ts";
import type { Verdict } from "./verdict.ts";

/** The process whose clients are watched. */
interface Watched {
  readonly machine: Machine;
  readonly health: Health;
  readonly lockIsGone: () => boolean;
}

/**
 * Watches the clients of one process: that nothing is written on a connection that is not ready, or
 * is silent (rule 9), and since when Redis can be reached from there.
 */
export class ClientWatch implements ClientWatcher {
  readonly #watched: Watched;
  readonly #silenceMs: number;
  readonly #executions: Executions;
  readonly #verdict: Verdict;
  readonly #reporter: Reporter;
  readonly #read: () => void;
  #untroubled: (() => void) | undefined;

  constructor(
    watched: Watched,
    commandTimeoutMs: number,
    executions: Executions,
    verdict: Verdict,
    reporter: Reporter,
    read: () => void,
  ) {
    this.#watched = watched;
    this.#silenceMs = 0.9 * commandTimeoutMs;
    this.#executions = executions;
    this.#verdict = verdict;
    this.#reporter = reporter;
    this.#read = read;
    this.#untroubled = watched.health.troubled();
  }

  writes(client: SimulatedClient, script: string, keys: readonly string[]): void {
    const { machine, lockIsGone } = this.#watched;
    this.#note(() => `writes ${nameOf(script)} ${keys.join(" ")} ${lane(client)}`);
    if (client.status !== "ready") {
      this.#verdict.broken("silence", `a script was written while "${client.status}"`);
    }
    const oldest = client.oldestWrittenAt;
    // A store that nobody used any more has forgotten what it was waiting for.
    const isWatched = nameOf(script) !== "probe" && !lockIsGone();
    if (
      isWatched &&
      oldest !== undefined &&
      machine.monotonicMs() - oldest > this.#silenceMs + 0.001
    ) {
      this.#verdict.broken("silence", "a script was written on a silent connection");
    }
  }

  executes(copy: WrittenCopy, run: () => unknown): unknown {
    const { name } = this.#watched.machine;
    this.#reporter.count(`executed: ${nameOf(copy.script)}`);
    this.#reporter.note(() => `Redis      executes ${nameOf(copy.script)} of ${name}`);
    return this.#executions.watch(copy, run);
  }

  reads(): void {
    this.#read();
  }

  troubled(): () => void {
    return this.#watched.health.troubled();
  }

  connected(client: SimulatedClient): void {
    this.#note(() => `connected ${lane(client)}`);
    if (client.isSecond) return;
    this.#untroubled?.();
    this.#untroubled = undefined;
  }

  closed(client: SimulatedClient): void {
    const { health } = this.#watched;
    this.#note(() => `lost its connection ${lane(client)}`);
    // The second connection is opened anew; without the first there is none.
    if (client.isSecond) health.troubled()();
    else this.#untroubled ??= health.troubled();
  }

  #note(text: () => string): void {
    this.#reporter.note(() => `${this.#watched.machine.name}  ${text()}`);
  }
}

function lane(client: SimulatedClient): string {
  return client.isSecond ? "[second]" : "[first]";
}
