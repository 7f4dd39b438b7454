import { randomUUID } from "node:crypto";
import { once } from "node:events";
import { createServer, type ServerResponse } from "node:http";
import type { AddressInfo } from "node:net";
import { expect } from "vitest";
import { Program } from "../../support/child.ts";
import { freePort } from "../../support/free-port.ts";
import { freshUser } from "../../support/ids.ts";
import { sharedRedisPort } from "../../support/redis-server.ts";
import { until } from "../../support/until.ts";

/** Runs a shop, on the tests' Redis or another one, and a bank for it as long as `play` takes. */
export async function withShop(
  command: Command,
  play: (shop: ShopProcess, bank: Bank) => Promise<void>,
  redisPort = sharedRedisPort(),
): Promise<void> {
  const bank = await openBank();
  try {
    const shop = await startShop(command, bank, redisPort);
    try {
      await play(shop, bank);
    } finally {
      await shop.stop();
    }
  } finally {
    bank.close();
  }
}

/**
 * Clicks twice at the same moment. The bank answers nobody before one of the two is answered, or
 * both are charged.
 */
export async function clickTwice(
  click: () => Promise<Response>,
  bank: Bank,
): Promise<[Response, Response]> {
  const charged = bank.charges;
  let isAnswered = false;
  const answered = () => {
    isAnswered = true;
  };
  bank.hold();
  const clicks = [click(), click()] as const;
  Promise.race(clicks).then(answered, answered);
  try {
    const decided = () => isAnswered || bank.charges === charged + 2;
    await until(decided, { what: "the second click to be refused or charged" });
  } finally {
    bank.release();
  }
  return await Promise.all(clicks);
}

/** What every recipe has to do: one order of two clicks, and of a late one the first answer. */
export async function expectOneOrder(shop: ShopProcess, bank: Bank): Promise<void> {
  const user = freshUser();
  const before = bank.charges;
  const both = await clickTwice(() => shop.order(user), bank);
  expect(both.map(({ status }) => status).sort()).toEqual([201, 409]);
  expect(bank.charges).toBe(before + 1);

  const another = freshUser();
  const key = randomUUID();
  const first = await shop.order(another, { key });
  expect(first.status).toBe(201);
  const late = await shop.order(another, { key });
  expect(late.status).toBe(201);
  expect(late.headers.get("idempotent-replayed")).toBe("true");
  expect(await late.text()).toBe(await first.text());
  expect(bank.charges).toBe(before + 2);
}

/** A client that leaves takes no lock away from the handler that goes on, and leaves none behind. */
export async function expectHeldUntilDone(shop: ShopProcess, bank: Bank): Promise<void> {
  const user = freshUser();
  const leaving = new AbortController();
  const before = bank.charges;
  bank.hold();
  const left = shop.order(user, { signal: leaving.signal }).catch((error) => error.name);
  await until(() => bank.charges === before + 1, { what: "the charge" });
  leaving.abort();
  expect(await left).toBe("AbortError");
  expect((await shop.order(user)).status).toBe(409);
  bank.release();
  await untilFree(shop, user);
  expect(bank.charges).toBe(before + 2);
}

/** The lock is held while a stream is read, and released when its reader leaves. */
export async function expectHeldWhileRead(shop: ShopProcess): Promise<void> {
  const user = freshUser();
  const leaving = new AbortController();
  const path = "/orders/report";
  const report = await shop.order(user, { path, key: randomUUID(), signal: leaving.signal });
  expect(report.status).toBe(201);
  const parts = await report.body?.getReader().read();
  expect(new TextDecoder().decode(parts?.value)).toMatch(/^at work/);
  expect((await shop.order(user)).status).toBe(409);
  leaving.abort();
  await untilFree(shop, user);
}

/** A shop that is asked to end answers the order under way, and is gone soon after. */
export async function expectEndedByOrder(
  shop: ShopProcess,
  bank: Bank,
  path = "/orders",
): Promise<void> {
  bank.hold();
  const order = shop.order(freshUser(), { path, key: randomUUID() });
  await until(() => bank.charges === 1, { what: "the charge" });
  shop.terminate();
  bank.release();
  const answer = await order;
  expect([answer.status, await answer.text()]).toEqual([201, expect.stringContaining("}")]);
  const answered = performance.now();
  await shop.ended;
  // Not the keep-alive of a connection: 5 s on Node.js, 72 s on Fastify.
  expect(performance.now() - answered).toBeLessThan(4_000);
}

/** Orders again until the lock of the order before is released. */
export async function untilFree(shop: ShopProcess, user: string): Promise<void> {
  const placed = async () => (await shop.order(user)).status === 201;
  await until(placed, { what: "another order of the same user", boundMs: 8_000, everyMs: 50 });
}

/** What the recipes' shops pay at: it counts the charges, and answers none while it is held. */
async function openBank() {
  let charges = 0;
  let waiting: ServerResponse[] | undefined;
  const answer = (res: ServerResponse) => res.end(JSON.stringify({ charge: charges }));
  const server = createServer((_req, res) => {
    charges += 1;
    res.setHeader("Content-Type", "application/json");
    if (waiting === undefined) answer(res);
    else waiting.push(res);
  }).listen(0, "127.0.0.1");
  await once(server, "listening");
  return {
    url: `http://127.0.0.1:${(server.address() as AddressInfo).port}`,
    get charges() {
      return charges;
    },
    hold() {
      waiting ??= [];
    },
    release() {
      waiting?.forEach(answer);
      waiting = undefined;
    },
    close() {
      server.close();
      server.closeAllConnections();
    },
  };
}
export type Bank = Awaited<ReturnType<typeof openBank>>;

/** Where to run what: a program and its arguments, in the folder of the project. */
export interface Command {
  readonly program: string;
  /** `$PORT` in them is the port, which the environment has as well. */
  readonly args: readonly string[];
  readonly folder: string;
  readonly env?: Readonly<Record<string, string>>;
}

/** Longer than any answer takes; a shop that lets a click through to a held bank gives none. */
const answerWithinMs = 30_000;

interface OrderOptions {
  readonly cookie?: string;
  readonly key?: string;
  readonly path?: string;
  readonly signal?: AbortSignal;
}

/** A shop of a recipe, in a process of its own. Rejects with what it printed if it does not answer. */
async function startShop(command: Command, bank: Bank, redisPort: number) {
  const { program, args, folder } = command;
  const port = `${await freePort()}`;
  const redisUrl = `redis://127.0.0.1:${redisPort}`;
  const own = { REDIS_URL: redisUrl, PAYMENTS_URL: bank.url, PORT: port };
  const env = { ...process.env, ...command.env, ...own };
  const filled = args.map((arg) => arg.replace("$PORT", port));
  const child = new Program(program, filled, { cwd: folder, env });
  const url = `http://127.0.0.1:${port}`;
  const answers = () =>
    fetch(url).then(
      () => true,
      () => false,
    );
  await child.until(answers, "to answer");
  return {
    url,
    /**
     * Posts an order of the user, as the recipes' shops without forms take it. Rejects after 30 s
     * without an answer.
     */
    order(
      user: string,
      { cookie, key, path = "/orders", signal }: OrderOptions = {},
    ): Promise<Response> {
      const headers = new Headers({ "x-user-id": user, "content-type": "application/json" });
      if (key !== undefined) headers.set("idempotency-key", key);
      if (cookie !== undefined) headers.set("cookie", cookie);
      const body = JSON.stringify({ cart: 7 });
      const timeout = AbortSignal.timeout(answerWithinMs);
      const either = signal === undefined ? timeout : AbortSignal.any([timeout, signal]);
      const init = { method: "POST", redirect: "manual", signal: either } as const;
      return fetch(url + path, { ...init, headers, body });
    },
    output: () => child.output(),
    terminate: () => child.kill("SIGTERM"),
    ended: child.ended,
    async stop() {
      child.kill();
      await child.ended;
    },
  };
}
export type ShopProcess = Awaited<ReturnType<typeof startShop>>;
