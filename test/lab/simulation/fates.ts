import type { CommandFate } from "./network/surroundings.ts";
import type { Reporter } from "./report.ts";
import type { FatePlan } from "./schedule.ts";
import { nameOf } from "./script-names.ts";

/** What becomes of the commands that one process writes, as the schedule has it. */
export class Fates {
  readonly #plans: readonly FatePlan[];
  readonly #reporter: Reporter;
  #written = 0;
  #completes = 0;

  /** @param plans those of this process. */
  constructor(plans: readonly FatePlan[], reporter: Reporter) {
    this.#plans = plans;
    this.#reporter = reporter;
  }

  /** Of the next command, which calls this script. */
  next(script: string): CommandFate | undefined {
    const nth = this.#written++;
    const nthComplete = nameOf(script) === "complete" ? this.#completes++ : undefined;
    const fate = this.#plans.find((plan) => plan.nth === (plan.ofCompletes ? nthComplete : nth));
    if (fate !== undefined) this.#tell(fate);
    return fate;
  }

  #tell(fate: FatePlan): void {
    const reporter = this.#reporter;
    if (fate.requestMs > 0) reporter.count("fault: request held");
    if (fate.replyMs > 0) reporter.count("fault: reply held");
    if (fate.oddAnswer) reporter.count("fault: odd answer");
    if (fate.resetMs !== undefined) {
      reporter.count(
        fate.stillLands ? "fault: reset, copy may still land" : "fault: reset, copy lost",
      );
    }
    reporter.note(() => `           ${JSON.stringify(fate)}`);
  }
}
