import { setImmediate as nextTurn } from "node:timers/promises";
import fc from "fast-check";
import { Redis } from "ioredis";
import { afterAll, beforeAll, expect, test } from "vitest";
import { type IoredisClient, IoredisPort } from "../../../../src/stores/redis/clients/ioredis.ts";
import { acquireScript } from "../../../../src/stores/redis/commands/acquire.ts";
import { freshUser } from "../../../support/ids.ts";
import { type ReplicatedRedis, startReplicated } from "../../../support/replicated-redis.ts";
import { until } from "../../../support/until.ts";
import { SimulatedRedis } from "../server/simulated-redis.ts";
import { EventLoop, Machine, on } from "../time/event-loop.ts";
import { Noise } from "../time/random.ts";
import { SimulatedClient } from "./simulated-client.ts";
import { calm, ioredisDefaults, nobody } from "./surroundings.ts";

/**
 * Rule 21 rests on what a `WAIT` counts and whom it holds up. Under the same steps the simulated
 * client and server have to answer what ioredis, a real master and its replica do, in the same order
 * on each connection.
 *
 * A `WAIT` without a write before it is not compared. Redis promises nothing for it, and goes by the
 * last command of the connection, whatever that was; the simulated one does no more than is promised.
 */

type Who = "first" | "second";
type Step =
  /** A script that writes, where told with a `WAIT` behind it in the same pipeline. */
  | { readonly write: Who; readonly waitMs?: number | undefined }
  | { readonly replica: "pauses" | "goes on" };

const hourMs = 3_600_000;
/** Over before the replica goes on. */
const briefMs = 30;

/** Two connections to a master with one replica. */
abstract class Subject {
  readonly logs: Record<Who, string[]> = { first: [], second: [] };
  protected abstract readonly clients: Record<Who, IoredisClient>;
  readonly #prefix = freshUser();
  #asked = 0;

  protected abstract nowMs(): number;
  protected abstract pauseReplica(): void;

  /** What only a replica that goes on can do is not among it. */
  protected perform(step: Step): void {
    if ("replica" in step) {
      if (step.replica === "pauses") this.pauseReplica();
      return;
    }
    const name = `${++this.#asked}`;
    const wait = step.waitMs === undefined ? undefined : ["wait", 1, step.waitMs];
    const port = new IoredisPort(this.clients[step.write]);
    void port.together(0, acquireScript, [this.#call(name)], wait).then((replies) => {
      this.logs[step.write].push(`${name}: ${replies.map(shown).join(", ")}`);
    });
  }

  #call(name: string) {
    const deadline = Math.round(this.nowMs() + hourMs);
    const settings = [deadline, 2 * hourMs, hourMs, hourMs, 0, ":"];
    return { keys: [`${this.#prefix} ${name}`], args: [...settings, name.padEnd(36, "-")] };
  }
}

function shown(reply: unknown): string {
  return Array.isArray(reply) ? `script says ${reply[2]}` : `${reply} replicas`;
}

class RealSubject extends Subject {
  protected readonly clients: Record<Who, Redis>;
  readonly #server: ReplicatedRedis;

  constructor(server: ReplicatedRedis) {
    super();
    this.#server = server;
    const connect = () => new Redis(server.master.port, "127.0.0.1");
    this.clients = { first: connect(), second: connect() };
  }

  async play(step: Step, expected: Subject): Promise<void> {
    if ("replica" in step && step.replica === "goes on") this.#server.replicas[0]?.resume();
    else this.perform(step);
    const isLevel = () =>
      this.logs.first.length >= expected.logs.first.length &&
      this.logs.second.length >= expected.logs.second.length;
    // Whoever compares will see what is missing.
    await until(isLevel, { what: "the real ones", boundMs: 20_000 }).catch(() => {});
    await nextTurn();
  }

  close(): void {
    this.#server.replicas[0]?.resume();
    for (const client of Object.values(this.clients)) client.disconnect();
  }

  protected nowMs(): number {
    return Date.now();
  }

  protected pauseReplica(): void {
    this.#server.replicas[0]?.pause();
  }
}

/** What follows from a step has happened after that; only what waits for the replica takes longer. */
const settledMs = 1_000;
/** How long the replica pauses: longer than all steps of a script, shorter than a long `WAIT`. */
const pausedMs = 500_000;
class SimulatedSubject extends Subject {
  protected readonly clients: Record<Who, SimulatedClient>;
  readonly #loop = new EventLoop(new Noise(0));
  readonly #server = new SimulatedRedis(this.#loop, 1, nobody, 0.1);
  readonly #machine = new Machine(this.#loop, "client", { runsJavaScript: true });
  #goesOnAt: number | undefined;

  constructor() {
    super();
    const connect = () => {
      const around = calm(this.#loop, this.#machine, this.#server);
      const client = new SimulatedClient(around, ioredisDefaults);
      void client.connect();
      return client;
    };
    this.clients = on(this.#machine, () => ({ first: connect(), second: connect() }));
  }

  async play(step: Step): Promise<void> {
    if ("replica" in step && step.replica === "goes on") {
      if (this.#goesOnAt !== undefined) await this.#machine.pass(this.#goesOnAt - this.#loop.now);
      this.#goesOnAt = undefined;
    } else this.#machine.after(0, () => this.perform(step));
    await this.settle();
  }

  async settle(): Promise<void> {
    await this.#machine.pass(settledMs);
  }

  protected nowMs(): number {
    return this.#server.nowMs;
  }

  protected pauseReplica(): void {
    if (this.#goesOnAt !== undefined) return;
    this.#goesOnAt = this.#loop.now + pausedMs;
    this.#server.replica.pause(pausedMs);
  }
}

let server: ReplicatedRedis;
beforeAll(async () => {
  server = await startReplicated();
});
afterAll(() => server.stop());

async function compare(steps: readonly Step[]): Promise<void> {
  const simulated = new SimulatedSubject();
  await simulated.settle();
  const real = new RealSubject(server);
  try {
    for (const step of [...steps, { replica: "goes on" } as const]) {
      await simulated.play(step);
      await real.play(step, simulated);
      expect(simulated.logs, `after ${JSON.stringify(step)}`).toEqual(real.logs);
    }
  } finally {
    real.close();
  }
}

/** What rule 21 says of a `WAIT`. */
const examples: readonly (readonly Step[])[] = [
  // It does not count a replica that has all but the last write.
  [
    { write: "first", waitMs: hourMs },
    { replica: "pauses" },
    { write: "first", waitMs: briefMs },
    { write: "second", waitMs: briefMs },
  ],
  // It holds up its own connection, and no other one.
  [
    { replica: "pauses" },
    { write: "first", waitMs: hourMs },
    { write: "first" },
    { write: "second" },
    { write: "second", waitMs: briefMs },
  ],
];

const who = fc.constantFrom<Who>("first", "second");
const waitMs = fc.constantFrom(briefMs, hourMs);
const steps: fc.Arbitrary<Step[]> = fc.array(
  fc.oneof(
    fc.record({ write: who, waitMs: fc.option(waitMs, { nil: undefined }) }),
    fc.record({ replica: fc.constantFrom("pauses" as const, "goes on" as const) }),
  ),
  { maxLength: 8 },
);

test("a simulated WAIT counts and holds up as a real one does", { timeout: 120_000 }, async () => {
  const numRuns = Number(process.env["WAIT_RUNS"] ?? 30);
  await fc.assert(fc.asyncProperty(steps, compare), {
    numRuns,
    examples: examples.map((script) => [script]),
    endOnFailure: true,
  });
});
