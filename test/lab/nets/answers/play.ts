import { createServer, type RequestListener } from "node:http";
import { setTimeout as sleep } from "node:timers/promises";
import { MemoryStore, SubmitLock } from "../../../../src/index.ts";
import { allMain, type Framework } from "../../../http/frameworks.ts";
import { listen } from "../../../http/http-client.ts";
import { freshUser } from "../../../support/ids.ts";
import { until } from "../../../support/until.ts";
import { compare, type Found } from "./judge.ts";
import { type LayerName, layer } from "./layers.ts";
import { perform, type Step } from "./steps.ts";
import { type Answer, ask, textOf } from "./wire.ts";

/** A handler, and what is around it. */
export interface Program {
  readonly framework: string;
  readonly family: Framework["family"];
  readonly method: "POST" | "HEAD";
  readonly acceptsGzip: boolean;
  /** Around the guard. */
  readonly outside: readonly LayerName[];
  /** Between the guard and the handler. */
  readonly inside: readonly LayerName[];
  readonly script: readonly Step[];
  /** When a second request is sent: when the handler has begun, and waits for it, or so many ms later. */
  readonly second?: "meets the first" | number;
}

/** What a program has shown. */
export interface Seen {
  readonly differing: readonly Found[];
  readonly problems: readonly string[];
}

/** How long what comes may take, in ms: at a pace of 8 as at 1. */
const boundAt = (pace: number) => Math.max(8, pace) * 1_000;
/** How long a bare application may be silent, and how long a guarded one that is like it. */
const silenceMs = 1_000;
const knownSilenceMs = 200;

/** What reaches the process, of the program that runs. */
const strays: unknown[] = [];
for (const event of ["unhandledRejection", "uncaughtException"]) {
  process.on(event, (value) => strays.push(value));
}

const apps = new Map<string, RequestListener>();
const server = createServer((req, res) => apps.get(`${req.headers["x-app"]}`)?.(req, res));
let port = 0;

export async function open(): Promise<void> {
  port = await listen(server);
  server.unref();
  // What frameworks say of the errors that programs make.
  console.error = () => {};
}

/** An application of its own, for the requests with its name in `x-app`. */
export function serve(id: string, app: RequestListener): { port: number; close(): void } {
  apps.set(id, app);
  return { port, close: () => void apps.delete(id) };
}

interface Running {
  readonly guarded?: "lock" | "once";
  readonly patienceMs: number;
  /** What never ends, and cannot be seen, is held to a short `maxHoldMs`. */
  readonly isShort?: boolean;
  readonly pace: number;
}

/** @param pace what every time is multiplied by, on a busy machine */
export async function play(program: Program, pace: number): Promise<Seen> {
  const problems: string[] = [];
  const bareRun = new Run(program, { patienceMs: pace * silenceMs, pace });
  const [bare, ran] = await bareRun.submit();
  const isShort = bare.ending !== "whole" || !(await bareRun.settles()) || isUnseen(program);
  const bareStrays = strays.splice(0).length;
  const patienceMs = bare.ending === "hanging" ? pace * knownSilenceMs : boundAt(pace);
  const differing: Found[] = [];
  const differs = (stage: Found["stage"], expected: Answer, got: Answer) =>
    differing.push(...compare(program, stage, expected, got));
  for (const guarded of ["lock", "once"] as const) {
    const run = new Run(program, { guarded, patienceMs, isShort, pace });
    const [first, runs] = await run.submit();
    differs(guarded === "lock" ? "lock" : "first", bare, first);
    if (runs !== ran) problems.push(`${guarded}: the handler ran ${runs} times, bare ${ran}`);
    await run.free().catch((error: Error) => problems.push(`${guarded}: ${error.message}`));
    // A HEAD is not a submission that could be repeated.
    if (guarded === "once" && program.method !== "HEAD") {
      const [repeat, more] = await run.submit();
      const isKept = first.ending === "whole" && first.status < 400;
      if (more > 0 && isKept) {
        const answers = [first, repeat] as const;
        differing.push({
          program,
          stage: "repeat",
          part: "runs",
          expected: "0",
          got: `${more}`,
          answers,
        });
      }
      if (isUnavailable(first, repeat)) {
        if (mustBeKept(program, first)) problems.push("the answer was not kept");
      } else if (more > 0) differs("first", bare, repeat);
      else differs("repeat", first, repeat);
      await run.free().catch((error: Error) => problems.push(`repeat: ${error.message}`));
    }
    await run.close();
  }
  if (program.second !== undefined && program.method !== "HEAD") {
    const run = new Run(program, { guarded: "once", patienceMs, isShort, pace });
    const [first, second, runs] = await run.both(program.second);
    const isUnknown = isUnavailable(first, second);
    const isEnded = /idempotency_in_flight/.test(textOf(second));
    if (isUnknown && isEnded && mustBeTold(program, first))
      problems.push("who waited was not told");
    // Whoever comes behind the end of an answer that is not kept, runs.
    else if (!isUnknown && runs === ran) differs("repeat", first, second);
    if (runs !== ran && program.second === "meets the first") problems.push("both have run");
    await run.free().catch((error: Error) => problems.push(`told: ${error.message}`));
    await run.close();
  }
  // Of an end behind the end, Node emits an error or none: that depends on the turn.
  const more = strays.splice(0).filter((each) => !/write after end/.test(`${each}`));
  if (more.length > 5 * bareStrays)
    problems.push(...more.map((each) => `stray: ${(each as Error)?.stack}`));
  return { differing, problems };
}

/** The documented answer for what could not be kept. */
function isUnavailable(first: Answer, repeat: Answer): boolean {
  if (repeat.status !== 409) return false;
  const codes = /idempotency_(answer_unavailable|in_flight)/;
  // Outer middleware may have made any text of the answer's.
  return first.status !== 409 || codes.test(textOf(repeat));
}

/** Whatever its status. On fetch, what answers for a handler that throws is beyond the guard. */
function mustBeTold(program: Program, answer: Answer): boolean {
  const { family, script } = program;
  const throws =
    answer.status === 500 || script.some(([name]) => /^(exception|own|throw)$/.test(name));
  const isElsewhere = family === "fetch" && throws;
  return mustBeKept(program, { ...answer, status: 200 }) && !isElsewhere;
}

/** Texts and bytes of a moderate length, in a coding that every client reads. */
function mustBeKept({ inside, script }: Program, answer: Answer): boolean {
  const { body, ending, headers, status } = answer;
  const isStream = script.some(([name]) => /stream|pipe|web|response|events|blob/i.test(name));
  return (
    ending === "whole" &&
    !isStream &&
    (status === 204 || !inside.some((name) => /buffer|compress|session|slowly/.test(name))) &&
    status < 300 &&
    body.length < 60_000 &&
    // Koa announces a length with the flushed head, and a client reads no more of a longer answer.
    !(script.some(([name]) => name === "flush") && JSON.stringify(script).includes('"LONG"')) &&
    !headers.has("content-encoding")
  );
}

/** Work whose end cannot be seen, such as a stream that outer middleware of fetch has replaced. */
function isUnseen({ family, method, outside, script }: Program): boolean {
  // `pipeline` to a response that has ended rejects, or never settles: that depends on the turn.
  if (script.filter(([name]) => /pipe(line)?$/.test(name)).length > 1) return true;
  if (family === "fetch") return outside.includes("fails");
  if (family !== "koa") return false;
  return method === "HEAD" || script.some(([name]) => /^(web|response|by hand)$/.test(name));
}

/** One application, with or without its guard. */
class Run {
  readonly #program: Program;
  readonly #id = freshUser();
  readonly #lock: SubmitLock;
  readonly #patienceMs: number;
  readonly #pace: number;
  #runs = 0;
  #settled = 0;
  #isMet = false;
  #hasBegun = () => {};

  constructor(program: Program, { guarded, isShort, pace, patienceMs }: Running) {
    this.#program = program;
    this.#patienceMs = patienceMs;
    this.#pace = pace;
    const times = isShort ? { ttlMs: 200 * pace, maxHoldMs: 400 * pace } : { ttlMs: 60_000 };
    this.#lock = new SubmitLock({ store: new MemoryStore(), ...times });
    const { family, framework, inside, outside, script } = program;
    const { listener } = allMain.find(({ name }) => name === framework) as Framework;
    const app = listener({
      lock: guarded === undefined ? undefined : this.#lock,
      guard:
        guarded === "once" ? { idempotency: { replayHeaders: ["x-kept"], waitMs: 5_000 } } : {},
      outside: outside.map(layer),
      inside: inside.map(layer),
      handler: async (turn) => {
        this.#runs++;
        if (this.#isMet && this.#runs === 1) await this.#meets();
        return await perform(family, script, turn).finally(() => this.#settled++);
      },
    });
    apps.set(this.#id, app);
  }

  /** The answer, and how often the handler ran for it. */
  async submit(): Promise<[Answer, number]> {
    const before = this.#runs;
    const { acceptsGzip, method } = this.#program;
    const headers = {
      "x-app": this.#id,
      "x-user": "user",
      "idempotency-key": "order-7",
      "content-type": "application/json",
      accept: "application/json",
      ...(acceptsGzip && { "accept-encoding": "gzip" }),
    };
    const answer = await ask(port, { method, headers, patienceMs: this.#patienceMs });
    return [answer, this.#runs - before];
  }

  /** The second request waits. */
  async #meets(): Promise<void> {
    this.#hasBegun();
    const waits = () => this.#lock.stats().waiting > 0;
    await until(waits, { what: "a repeat to wait", boundMs: boundAt(this.#pace), everyMs: 1 });
  }

  /** What two requests are answered, and how often the handler ran for both. */
  async both(second: NonNullable<Program["second"]>): Promise<[Answer, Answer, number]> {
    this.#isMet = second === "meets the first";
    const begun = new Promise<void>((resolve) => {
      this.#hasBegun = resolve;
    });
    const first = this.submit();
    // Another may answer for the handler.
    await (typeof second === "number" ? sleep(second) : Promise.race([begun, first]));
    const [[one], [other]] = await Promise.all([first, this.submit()]);
    return [one, other, this.#runs];
  }

  /** Whether the handler ends soon after its answer: `pipeline` to an ended response never does. */
  async settles(): Promise<boolean> {
    for (let i = 0; i < 20 * this.#pace && this.#settled < this.#runs; i++) await sleep(1);
    return this.#settled >= this.#runs;
  }

  async free(): Promise<void> {
    const isFree = async () => {
      const attempt = await this.#lock.acquire("user");
      if (attempt.outcome !== "acquired") return false;
      await attempt.lease.release();
      return true;
    };
    await until(isFree, { what: "the user to be free", boundMs: boundAt(this.#pace), everyMs: 1 });
  }

  async close(): Promise<void> {
    apps.delete(this.#id);
    await this.#lock.close({ timeoutMs: 0 });
  }
}
