import fc from "fast-check";
import { afterAll, beforeAll, expect, test } from "vitest";
import { type RedisServer, startRedis } from "../../../support/redis-server.ts";
import { RealSubject, SimulatedSubject } from "./both-subjects.ts";
import { commandTimeoutMs, neverMs, type Script, scripts, usual } from "./subject.ts";

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
    steps: [{ ask: "first", held: "reply" }, { disconnect: "first", asks: true }, { ask: "first" }],
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

test("the simulated client does as ioredis does", { timeout: 120_000 }, async () => {
  const numRuns = Number(process.env["CLIENT_RUNS"] ?? 60);
  await fc.assert(fc.asyncProperty(scripts, compare), {
    numRuns,
    examples: examples.map((script) => [script]),
    // A script that fails waits for what does not come: fewer steps would take minutes to find.
    endOnFailure: true,
  });
});
