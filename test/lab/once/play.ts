import { type Crash, crash } from "./crash.ts";
import type { Hello } from "./library.ts";
import { type Scenario, scenarios, type Trial } from "./scenarios.ts";
import { Stage } from "./stage.ts";

export interface Played extends Hello {
  readonly trials: ReadonlyMap<Scenario, readonly Trial[]>;
  readonly crash: Crash;
  /** How often the shop's process ended by itself. */
  readonly ended: number;
}

export interface PlayOptions {
  readonly binary: string;
  /** Of each scenario. */
  readonly trials: number;
  /** Whose orders are under way when the process is killed. */
  readonly crashUsers: number;
}

/** Every scenario against one library, one after the other, and the crash at the end. */
export async function play(module: URL, options: PlayOptions): Promise<Played> {
  const stage = await Stage.open(module, options.binary);
  try {
    await stage.warmUp();
    const trials = new Map<Scenario, Trial[]>();
    for (const scenario of scenarios) {
      const played: Trial[] = [];
      for (let trial = 0; trial < options.trials; trial++) {
        await stage.ensureShop();
        played.push(await scenario.play(stage));
      }
      trials.set(scenario, played);
    }
    await stage.ensureShop();
    return {
      ...stage.hello,
      trials,
      crash: await crash(stage, options.crashUsers),
      ended: stage.ended,
    };
  } finally {
    await stage.close();
  }
}
