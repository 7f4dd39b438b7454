import { setImmediate as nextTurn } from "node:timers/promises";
import fc from "fast-check";
import { Redis } from "ioredis";
import { afterAll, beforeAll, describe, expect, test } from "vitest";
import { type IoredisClient, IoredisPort } from "../../../../src/stores/redis/clients/ioredis.ts";
import { acquireScript } from "../../../../src/stores/redis/commands/acquire.ts";
import { freshUser } from "../../../support/ids.ts";
import { type RedisServer, startRedis } from "../../../support/redis-server.ts";
import { type ReplicatedRedis, startReplicated } from "../../../support/replicated-redis.ts";
import { until } from "../../../support/until.ts";
import { nobody, SimulatedRedis } from "../server/simulated-redis.ts";
import { EventLoop, Machine, on } from "../time/event-loop.ts";
import { Noise } from "../time/random.ts";
import { RealSubject, SimulatedSubject } from "./both-subjects.ts";
import { SimulatedClient } from "./simulated-client.ts";
import { commandTimeoutMs, neverMs, type Script, scripts, usual } from "./subject.ts";
import { calm, ioredisDefaults } from "./surroundings.ts";

describe("simulated client", () => {
  /**
   * The simulation is worth as much as its client is like ioredis: under the same script both have to
   * tell, write and answer the same things in the same order.
   */

  let server: RedisServer;
  beforeAll(async () => {
    server = await startRedis();
  });
  afterAll(() => server.stop());

  async function compare({ options, steps }: Script): Promise<void> {
    const simulated = new SimulatedSubject(options);
    await simulated.settle();
    const real = await RealSubject.open(server, options);
    const shown = ({ logs, written, statuses }: SimulatedSubject | RealSubject) => {
      const by = (who: string) => written.filter((name) => name.startsWith(who));
      return structuredClone({
        ...logs,
        firstWrote: by("first"),
        secondWrote: by("second"),
        statuses,
      });
    };
    try {
      await real.catchUp(simulated);
      for (const step of [...steps, { release: true } as const]) {
        await simulated.play(step);
        await real.play(step, simulated);
        expect(shown(simulated), `after ${JSON.stringify(step)}`).toEqual(shown(real));
      }
    } finally {
      await real.close();
    }
  }

  /** What ioredis does that one would not think. */
  const examples: readonly Script[] = [
    // A call on a client that was not connected connects it.
    { options: { ...usual, lazyConnect: true }, steps: [{ ask: "first" }] },
    // What waits to be written again is not given up with the rest once a handshake has begun.
    {
      options: { ...usual, maxRetriesPerRequest: 1 },
      steps: [
        { ask: "first", held: "reply" },
        { silence: true },
        { reset: { lands: true } },
        { ask: "first" },
        { reset: { lands: true } },
      ],
    },
    // It is never settled at all without the re-sending.
    {
      options: { ...usual, autoResendUnfulfilledCommands: false },
      steps: [{ ask: "first", held: "reply" }, { reset: { lands: true } }, { ask: "first" }],
    },
    // Between two connections a client cannot be ended, and tells nobody of it.
    {
      options: { ...usual, retryMs: neverMs },
      steps: [
        { reset: { lands: true } },
        { disconnect: "first" },
        { ask: "first" },
        { connect: "first" },
        { reset: { lands: true } },
      ],
    },
    // Whoever says goodbye writes nothing more, and waits for the other end a while.
    {
      options: usual,
      steps: [
        { ask: "first", held: "reply" },
        { disconnect: "first", asks: true },
        { ask: "first" },
      ],
    },
    // Of what is given up, the queue comes first.
    {
      options: { ...usual, maxRetriesPerRequest: 1, retryMs: neverMs },
      steps: [
        { ask: "first", held: "reply" },
        { refuse: 1 },
        { reset: { lands: true } },
        { ask: "first" },
        { connect: "first" },
      ],
    },
    // What was given up is not written again, also where another attempt to connect came between.
    {
      options: { ...usual, enableOfflineQueue: false, maxRetriesPerRequest: 1 },
      steps: [{ refuse: 1 }, { ask: "first", held: "request" }, { reset: { lands: false } }],
    },
    // A time-out of commands is one of the handshake, too.
    {
      options: { ...usual, lazyConnect: true, commandTimeout: commandTimeoutMs, retryMs: neverMs },
      steps: [{ silence: true }, { ask: "first" }],
    },
  ];

  test("the simulated client does as ioredis does", async () => {
    const numRuns = Number(process.env["CLIENT_RUNS"] ?? 60);
    await fc.assert(fc.asyncProperty(scripts, compare), {
      numRuns,
      examples: examples.map((script) => [script]),
      // A script that fails waits for what does not come: fewer steps would take minutes to find.
      endOnFailure: true,
    });
  });
});

describe("waits", () => {
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

  /** Two connections to a master with one replica, and what they are told. */
  function subjectOf(nowMs: () => number, connect: () => IoredisClient) {
    const logs: Record<Who, string[]> = { first: [], second: [] };
    const clients = { first: connect(), second: connect() };
    const prefix = freshUser();
    let asked = 0;
    return {
      logs,
      write(who: Who, waitMs: number | undefined): void {
        const name = `${++asked}`;
        const settings = [Math.round(nowMs() + hourMs), 2 * hourMs, hourMs, hourMs, 0, ":"];
        const call = { keys: [`${prefix} ${name}`], args: [...settings, name.padEnd(36, "-")] };
        const wait = waitMs === undefined ? undefined : ["wait", 1, waitMs];
        const port = new IoredisPort(clients[who]);
        void port.together(0, acquireScript, [call], wait).then((replies) => {
          logs[who].push(`${name}: ${replies.map(shown).join(", ")}`);
        });
      },
      close() {
        for (const client of Object.values(clients)) client.disconnect();
      },
    };
  }

  function shown(reply: unknown): string {
    return Array.isArray(reply) ? `script says ${reply[2]}` : `${reply} replicas`;
  }

  /** What follows from a step has happened after that; only what waits for the replica takes longer. */
  const settledMs = 1_000;
  /** How long the replica pauses: longer than all steps of a script, shorter than a long `WAIT`. */
  const pausedMs = 500_000;

  /** The simulated ones, in virtual time. @returns what they are told, and how they take a step */
  async function simulate() {
    const loop = new EventLoop(new Noise(0));
    const server = new SimulatedRedis(loop, 1, nobody, 0.1);
    const machine = new Machine(loop, "client", { runsJavaScript: true });
    let goesOnAt: number | undefined;
    const connect = () => {
      const client = new SimulatedClient(calm(loop, machine, server), ioredisDefaults);
      void client.connect();
      return client;
    };
    const subject = on(machine, () => subjectOf(() => server.nowMs, connect));
    await machine.pass(settledMs);
    const play = async (step: Step): Promise<void> => {
      if ("write" in step) machine.after(0, () => subject.write(step.write, step.waitMs));
      else if (step.replica === "goes on") {
        if (goesOnAt !== undefined) await machine.pass(goesOnAt - loop.now);
        goesOnAt = undefined;
      } else if (goesOnAt === undefined) {
        goesOnAt = loop.now + pausedMs;
        server.replica.pause(pausedMs);
      }
      await machine.pass(settledMs);
    };
    return { logs: subject.logs, play };
  }

  let server: ReplicatedRedis;
  beforeAll(async () => {
    server = await startReplicated();
  });
  afterAll(() => server.stop());

  async function compare(steps: readonly Step[]): Promise<void> {
    const { logs, play } = await simulate();
    const [replica] = server.replicas;
    const real = subjectOf(Date.now, () => new Redis(server.master.port, "127.0.0.1"));
    const isLevel = () =>
      real.logs.first.length >= logs.first.length && real.logs.second.length >= logs.second.length;
    try {
      for (const step of [...steps, { replica: "goes on" } as const]) {
        await play(step);
        if ("write" in step) real.write(step.write, step.waitMs);
        else if (step.replica === "pauses") replica?.pause();
        else replica?.resume();
        // Whoever compares will see what is missing.
        await until(isLevel, { what: "the real ones", boundMs: 20_000 }).catch(() => {});
        await nextTurn();
        expect(logs, `after ${JSON.stringify(step)}`).toEqual(real.logs);
      }
    } finally {
      replica?.resume();
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

  test("a simulated WAIT counts and holds up as a real one does", async () => {
    const numRuns = Number(process.env["WAIT_RUNS"] ?? 30);
    await fc.assert(fc.asyncProperty(steps, compare), {
      numRuns,
      examples: examples.map((script) => [script]),
      endOnFailure: true,
    });
  });
});
