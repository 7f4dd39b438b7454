import fc from "fast-check";
import { allMain, newest } from "../../../http/frameworks.ts";
import { type Haul, hunt, main, type Plan } from "../hunt.ts";
import { type InputName, inputs, known, type Pumped, pumped, textOf } from "./shapes.ts";
import { Scales } from "./shop.ts";

/*
 * A program: every text that a client may send costs time that grows with its length and no faster.
 * What counts is the processor time that a guard adds to an application, and the least of several
 * tries, so that busy neighbours change nothing.
 */

interface Bounds {
  /** The most that twice the text may cost, as a multiple. */
  readonly ratio: number;
  /** In ms: what is below tells nothing. */
  readonly noiseMs: number;
  /** The longest that the longest text may keep the event loop busy, in ms. */
  readonly blockMs: number;
}

const strict: Bounds = { ratio: 2.5, noiseMs: 10, blockMs: 50 };
/** A square at its full length costs a second and more, and a line some milliseconds. */
const generous: Bounds = { ratio: 3, noiseMs: 60, blockMs: 500 };

/** Headers and bodies in bytes: headers are longer than Node.js admits by default. */
const lengthOf = (input: InputName) => Math.min(64_000, 4 * inputs[input].admitted);
const tries = 8;

interface Program {
  readonly text: Pumped;
  readonly framework: string;
  /** Looks at the longest text that is admitted, and not at a growing one. */
  readonly isLongest: boolean;
}

async function net(plan: Plan): Promise<Haul> {
  const bounds = plan.isStrict ? strict : generous;
  const chosen = (plan.isStrict ? allMain : newest).filter(({ family }) =>
    [undefined, family].includes(plan.family),
  );
  const scales = new Map(chosen.map((each) => [each.name, new Scales(each)]));
  const names = [...scales.keys()];
  const programs = fc.record<Program>({
    framework: fc.constantFrom(...names),
    isLongest: plan.isStrict
      ? fc.integer({ min: 0, max: 19 }).map((n) => n === 19)
      : fc.constant(false),
    text: pumped(Object.keys(inputs) as InputName[]),
  });
  const knownHere = names.flatMap((framework) =>
    known.map((text): Program => ({ framework, isLongest: false, text })),
  );
  const fails = async (program: Program, pace: number) => {
    // Neighbours that take the caches make processor time dearer, but not by much.
    const dearer = Math.min(pace, 3);
    const { blockMs, noiseMs, ratio } = bounds;
    const paced = { ratio, noiseMs: dearer * noiseMs, blockMs: dearer * blockMs };
    const weighing = new Weighing(scales.get(program.framework) as Scales, program, paced);
    return await (program.isLongest ? weighing.blocks() : weighing.growsFast());
  };
  try {
    return await hunt(plan, programs, fails, knownHere);
  } finally {
    for (const each of scales.values()) await each.close();
  }
}

class Weighing {
  readonly #scales: Scales;
  readonly #program: Program;
  readonly #bounds: Bounds;

  constructor(scales: Scales, program: Program, bounds: Bounds) {
    this.#scales = scales;
    this.#program = program;
    this.#bounds = bounds;
  }

  /** Doubles the length up to the full one: a square is found long before it takes minutes. */
  async growsFast(): Promise<string | undefined> {
    const { noiseMs, ratio } = this.#bounds;
    const full = lengthOf(this.#program.text.input);
    const steps: string[] = [];
    let before = 0;
    for (let length = full / 16; length <= full; length *= 2) {
      const most = noiseMs + ratio * before;
      const added = await this.#added(length, most);
      // Nearly all programs end here: all of a line and most of a square is in the full length.
      if (steps.length === 0 && added <= noiseMs && (await this.#added(full, noiseMs)) <= noiseMs) {
        return undefined;
      }
      steps.push(`${length} bytes: ${added.toFixed(1)} ms`);
      if (added > most) {
        const what = `costs more than ${ratio} times as much for twice the text`;
        return [`${this.#where()} ${what}`, ...steps].join("\n");
      }
      before = Math.max(0, added);
    }
    return undefined;
  }

  /** Whether the guard keeps the event loop busy for too long with the longest text. */
  async blocks(): Promise<string | undefined> {
    const { admitted } = inputs[this.#program.text.input];
    const bare: number[] = [];
    const guarded: number[] = [];
    let blockMs = 0;
    for (let i = 0; i < tries; i++) {
      lessen(bare, (await this.#cost(admitted, false, true)).turns);
      lessen(guarded, (await this.#cost(admitted, true, true)).turns);
      // Turn by turn, because a guard may work in the turn of a parser, or in one of its own.
      blockMs = Math.max(...guarded.map((ms, n) => ms - (bare[n] ?? 0)));
      if (blockMs <= this.#bounds.blockMs) return undefined;
    }
    return `${this.#where()} blocks the event loop for ${blockMs.toFixed(0)} ms with ${admitted} bytes`;
  }

  /** What a guard adds for a text of this length: the least of some tries, if it is more than `most`. */
  async #added(length: number, most: number): Promise<number> {
    let [guarded, bare] = [Number.POSITIVE_INFINITY, Number.POSITIVE_INFINITY];
    for (let i = 0; i < tries; i++) {
      guarded = Math.min(guarded, (await this.#cost(length, true)).sum);
      // What is less with the bare application's share is less without it.
      if (guarded <= this.#bounds.noiseMs) return guarded;
      bare = Math.min(bare, (await this.#cost(length, false)).sum);
      if (guarded - bare <= most) return guarded - bare;
    }
    return guarded - bare;
  }

  #cost(length: number, isGuarded: boolean, asksTurns = false) {
    const { input, shape } = this.#program.text;
    return this.#scales.cost(input, textOf(shape, length), isGuarded, asksTurns);
  }

  #where(): string {
    return `${this.#program.framework}, ${this.#program.text.input}:`;
  }
}

function lessen(least: number[], some: readonly number[]): void {
  for (const [n, ms] of some.entries()) least[n] = Math.min(least[n] ?? ms, ms);
}

await main(net);
