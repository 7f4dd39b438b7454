import { randomUUID } from "node:crypto";
import { subscribe, unsubscribe } from "node:diagnostics_channel";
import type { IncomingMessage, ServerResponse } from "node:http";
import { setTimeout as sleep } from "node:timers/promises";
import { describe, expect, onTestFinished, test } from "vitest";
import { submitGuard } from "../../src/fetch/index.ts";
import { type AcquireRequest, MemoryStore, SubmitLock } from "../../src/index.ts";
import { encodeRecord } from "../../src/lock/record.ts";
import { ioredis6 } from "../support/clients.ts";
import { startProxy } from "../support/proxy.ts";
import { forTest, sharedRedisPort } from "../support/redis-server.ts";
import { until } from "../support/until.ts";
import type { Framework } from "./frameworks.ts";
import { gate } from "./gate.ts";
import type { Reply } from "./http-client.ts";
import {
  codeOf,
  type OnceOptions,
  type OnceShop,
  onAll,
  openOnce,
  orderKey,
  unmarked,
} from "./once-shop.ts";
import type { Turn } from "./turn.ts";

const key = orderKey;

/** The replies of a first click and of one that waits for it. */
interface Both {
  readonly once: OnceShop;
  readonly first: Reply;
  readonly second: Reply;
}

/** Two clicks, of which the first one's handler goes on when the second one waits. */
async function clicksTwice(
  options: Omit<OnceOptions, "handler"> & { handler: (turn: Turn) => unknown },
  leaves = false,
): Promise<Both> {
  const waits = gate();
  const once = await openOnce({
    ...options,
    handler: async (turn, run) => {
      if (run > 1) return turn.answer(201, { run });
      await waits.opened;
      return await options.handler(turn);
    },
  });
  const call = await once.start({ key });
  const second = once.submit({ key });
  await until(() => once.shop.lock.stats().waiting === 1, { what: "the second click to wait" });
  if (leaves) call.abort();
  waits.open();
  const [first, other] = await Promise.all([call.reply.catch(() => undefined), second]);
  return { once, first: first as Reply, second: other };
}

async function isTold({ first, second, once }: Both, status: number): Promise<void> {
  expect([first.status, second.status]).toEqual([status, status]);
  expect(unmarked(second)).toEqual(unmarked(first));
  expect(second.headers["idempotent-replayed"]).toBe("true");
  expect(once.runs).toBe(1);
  // Whoever comes later runs.
  expect((await once.submit({ key })).body).toContain('"run":2');
}

const declines = (turn: Turn) => turn.answer(402, { declined: true });
const refusals: [what: string, status: number, end: (turn: Turn) => unknown][] = [
  ["a declined card", 402, declines],
  ["sold out", 409, (turn) => turn.answer(409, { stock: 0 })],
  [
    "a page that says what is wrong",
    422,
    (turn) => turn.answer(422, "<h1>Street?</h1>", "text/html"),
  ],
  ["a bank that is away", 503, (turn) => turn.answer(503, { bank: "away" })],
  ["no answer with a body", 404, (turn) => turn.answer(404, "", "text/plain")],
  [
    "a 200 that is not to be kept",
    200,
    (turn) => {
      turn.submission?.doNotStore();
      return turn.answer(200, { placed: false });
    },
  ],
];

describe.each(onAll)(
  "P9, rule 25: on $name a click that waited is told",
  (framework: Framework) => {
    test.each(refusals)("%s, as the first one was: %i", async (_what, status, handler) => {
      await isTold(await clicksTwice({ framework, handler }), status);
    });

    test("what `store` does not keep", async () => {
      const guard = { idempotency: { store: () => false } };
      const handler = (turn: Turn) => turn.answer(201, { order: 7 });
      await isTold(await clicksTwice({ framework, guard, handler }), 201);
    });

    // On fetch, what answers for a handler that throws is beyond the guard.
    test.skipIf(framework.family === "fetch")("what an error handler has answered", async () => {
      const both = await clicksTwice({
        framework,
        handler: (turn) => turn.fail(new Error("broken")),
      });
      await isTold(both, both.first.status);
      expect(both.first.status).toBeGreaterThanOrEqual(500);
    });

    test("also where the first browser has gone", async () => {
      const { once, second } = await clicksTwice({ framework, handler: declines }, true);
      expect([second.status, second.body]).toEqual([402, '{"declined":true}']);
      expect(once.runs).toBe(1);
    });

    test("nothing of an answer that is too long to be kept, nor without waitMs", async () => {
      const guard = { idempotency: { maxBodyBytes: 3 } };
      const { second } = await clicksTwice({ framework, guard, handler: declines });
      expect([second.status, codeOf(second)]).toEqual([409, "idempotency_in_flight"]);
      const goOn = gate();
      const handler = (turn: Turn) => goOn.opened.then(() => declines(turn));
      const once = await openOnce({ framework, guard: { idempotency: { waitMs: 0 } }, handler });
      const first = await once.start({ key });
      expect(codeOf(await once.submit({ key }))).toBe("idempotency_in_flight");
      goOn.open();
      expect((await first.reply).status).toBe(402);
      await once.whenKept(0);
    });
  },
);

/** The requests of a user, as the servers of this process see them. */
function requestsOf(user: string) {
  const seen = { count: 0, firstLeft: gate() };
  const begun = (message: unknown) => {
    const { request, response } = message as { request: IncomingMessage; response: ServerResponse };
    if (request.headers["x-user"] !== user) return;
    if (++seen.count === 1) response.once("close", seen.firstLeft.open);
  };
  subscribe("http.server.request.start", begun);
  onTestFinished(() => void unsubscribe("http.server.request.start", begun));
  return seen;
}

describe.each(onAll.filter(({ http }) => http === 1))(
  "P9, rule 25: on $name a double click whose first one left before its order began",
  (framework: Framework) => {
    // A browser aborts the first of two posts of a form. A busy Redis, or a busy process, has not
    // answered by then.
    test.each(["the same lock", "another lock"])("is one order, by %s", async (by) => {
      const proxy = await forTest(startProxy(sharedRedisPort()));
      const once = await openOnce({ framework, redis: ioredis6.connect(proxy.port) });
      await once.shop.lock.check();
      const { user } = once.shop;
      const other = by === "another lock" ? await openOnce({ framework }) : once;
      const requests = requestsOf(user);
      const isHeld = proxy.holdReplyOnce((argv) => argv.join(" ").includes(user));
      const first = once.begin({ key });
      await isHeld;
      const second = other.submit({ key, user });
      const { lock } = other.shop;
      const waits = () => (other === once ? requests.count === 2 : lock.stats().waiting === 1);
      await until(waits, { what: "the second click" });
      first.abort();
      await requests.firstLeft.opened;
      proxy.releaseHeld();
      expect(await second).toMatchObject({ status: 201, body: '{"run":1}' });
      await first.reply.catch(() => undefined);
      await once.whenKept(1);
      expect((await once.submit({ key })).headers["idempotent-replayed"]).toBe("true");
    });
  },
);

/** A store whose customers click without end, and leave before any of their orders begins. */
class Restless extends MemoryStore {
  override acquire({ answer, command, onlyLooks }: AcquireRequest): void {
    const storeTimeMs = Date.now();
    const record = encodeRecord({ ...command, identity: undefined }, { status: 101 }, storeTimeMs);
    const held = { sameSubmission: true, holderId: randomUUID(), expiresInMs: 9_000 };
    if (onlyLooks) answer({ kind: "told", storeTimeMs, record });
    else answer({ kind: "contended", storeTimeMs, ...held });
  }
}

test("P6: a click waits for waitMs in all, however many others leave", async () => {
  const lock = new SubmitLock({ store: new Restless() });
  onTestFinished(() => lock.close({ timeoutMs: 0 }));
  const guard = submitGuard({ lock, userId: () => "42", idempotency: { waitMs: 300 } });
  const place = guard.protect(() => new Response("placed", { status: 201 }));
  const from = performance.now();
  const headers = { "idempotency-key": key };
  const click = place(new Request("http://127.0.0.1/orders", { method: "POST", headers }));
  const answer = await Promise.race([click, sleep(30_000, undefined, { ref: false })]);
  expect([answer?.status, answer?.headers.get("submit-lock-code")]).toEqual([
    409,
    "idempotency_in_flight",
  ]);
  expect(performance.now() - from).toBeGreaterThan(250);
});
