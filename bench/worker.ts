import { execFileSync } from "node:child_process";
import { createHistogram } from "node:perf_hooks";
import { pathToFileURL } from "node:url";
import { Child } from "../test/support/child.ts";

/** Numbers by the name of their column. */
export type Measures = Readonly<Record<string, number>>;

/**
 * A process of the bench. Each subject has one of its own, so that none runs on code that was
 * optimised for another, or waits for its garbage.
 */
export class Worker<Job extends object> {
  readonly #child: Child<{ result?: Measures; error?: string }, Job>;

  private constructor(child: Child<{ result?: Measures; error?: string }, Job>) {
    this.#child = child;
  }

  /** Resolves when the process is ready. Its `setup` is JSON. */
  static async start<Job extends object>(file: string, setup: object): Promise<Worker<Job>> {
    const options = { env: { NODE_ENV: "production" } };
    const script = new URL(file, import.meta.url);
    const worker = new Worker<Job>(new Child(script, [JSON.stringify(setup)], options));
    await worker.#next();
    return worker;
  }

  async run(job: Job): Promise<Measures> {
    this.#child.send(job);
    return await this.#next();
  }

  async #next(): Promise<Measures> {
    const { error, result } = await this.#child.next();
    if (result === undefined) throw new Error(error);
    return result;
  }

  async stop(): Promise<void> {
    await this.#child.kill();
  }
}

/** The other side: does one job after the other. `hello` is the result of the start. */
export function serve<Job>(work: (job: Job) => Promise<Measures>): void {
  const answer = (message: object) => void process.send?.(message);
  process.on("message", (job: Job) => {
    work(job).then(
      (result) => answer({ result }),
      (error: Error) => answer({ error: error.stack ?? String(error) }),
    );
  });
  process.on("disconnect", () => process.exit());
  answer({ result: {} });
}

/** The package of a tree: its `dist`, whatever version it has. */
export async function packageAt<Entry>(tree: string, entry = "index.js"): Promise<Entry> {
  return await import(pathToFileURL(`${tree}/dist/esm/${entry}`).href);
}

/** Keeps a process on one core, where there are two and Linux has `taskset`. */
export function pin(core: 0 | 1, pid: number = process.pid): void {
  try {
    execFileSync("taskset", ["-apc", `${core}`, `${pid}`], { stdio: "ignore" });
  } catch {
    // Elsewhere the measurements spread more.
  }
}

/** Since when this process has taken how much processor time. */
export class ProcessorTime {
  #before = process.cpuUsage();

  /** In µs, since the last call. */
  take(): number {
    const { user, system } = process.cpuUsage(this.#before);
    this.#before = process.cpuUsage();
    return user + system;
  }
}

/** Durations in milliseconds, to a thousandth of their size. */
export class Samples {
  readonly #nanos = createHistogram();

  add(ms: number): void {
    this.#nanos.record(Math.max(1, Math.round(ms * 1e6)));
  }

  percentile(share: number): number {
    return this.#nanos.percentile(share) / 1e6;
  }
}
