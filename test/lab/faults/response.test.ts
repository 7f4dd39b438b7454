import { once } from "node:events";
import type { AddressInfo } from "node:net";
import { afterEach, beforeEach, describe, expect, test } from "vitest";
import { RedisStore } from "../../../src/index.ts";
import { type Framework, mainFrameworks } from "../../http/frameworks.ts";
import { openClient } from "../../http/http-client.ts";
import { closeClients, ioredis6, untilReady } from "../../support/clients.ts";
import { freshUser } from "../../support/ids.ts";
import { closeLocks, openLock } from "../../support/locks.ts";
import { observer } from "../../support/observer.ts";
import { type RedisProxy, startProxy } from "../../support/proxy.ts";
import { Pulse } from "../../support/pulse.ts";
import { sharedRedisPort } from "../../support/redis-server.ts";
import { until } from "../../support/until.ts";
import type { Fault } from "./fault.ts";
import { completeFaults, faults } from "./faults.ts";

const releaseFaults = faults.filter(({ on }) => on === "release");
/** Those on the way of one command; the others need a server of their own, or take Redis away. */
const onTheWayOfComplete = completeFaults.filter(
  ({ awayMs, on, ownServer }) => on === "complete" && awayMs === undefined && !ownServer,
);

/** An answer waits for no command to Redis: 100 ms is a fraction of what any of the faults costs. */
const untouchedMs = 100;
/** The half second of the promise. */
const freedMs = 500;

let proxy: RedisProxy;
let pulse: Pulse;
beforeEach(async () => {
  pulse = await Pulse.of(sharedRedisPort());
});
afterEach(async () => {
  pulse.stop();
  await closeLocks();
  closeClients();
  await proxy.stop();
});

describe.each(mainFrameworks)("P3 and P8: the answer and the key, on $name", (framework) => {
  test.each(releaseFaults)("$name: the answer is what the handler made of it", async (fault) => {
    const user = freshUser();
    const shop = await answeredUnder(framework, fault, { user });
    const redis = observer();
    await until(async () => !(await redis.exists(`lock:submit:${user}`)), {
      what: "the key to be gone",
    });
    expect(performance.now() - shop.answeredAt()).toBeLessThan(pulse.atMost(freedMs));
    await shop.close();
  });

  test.each(onTheWayOfComplete)("$name: the answer is, and is kept", async (fault) => {
    const user = freshUser();
    const shop = await answeredUnder(framework, fault, { user, guard: { idempotency: {} } });
    const redis = observer();
    const keys = async () => (await redis.send("KEYS", `*${user}*`)) as string[];
    // The record has taken the place of the lock.
    await until(async () => (await keys()).every((key) => key.startsWith("{")), {
      what: "the lock to be gone",
    });
    expect(performance.now() - shop.answeredAt()).toBeLessThan(pulse.atMost(freedMs));
    expect(await keys()).toHaveLength(1);
    await shop.close();
  });
});

/** A shop whose answer has been received whole and at once, when the fault has struck. */
async function answeredUnder(
  framework: Framework,
  fault: Fault,
  setup: { user: string; guard?: object },
) {
  proxy = await startProxy(sharedRedisPort());
  const shop = await openShop(framework, fault, setup);
  const reply = await shop.submit();
  const after = performance.now() - shop.answeredAt();
  expect(reply).toMatchObject({ status: 201, body: '{"order":7}' });
  expect(after).toBeLessThan(pulse.atMost(untouchedMs));
  await shop.struck();
  return shop;
}

async function openShop(
  framework: Framework,
  fault: Fault,
  { user, guard = {} }: { user: string; guard?: object },
) {
  const client = ioredis6.connect(proxy.port);
  await untilReady(client);
  const lock = openLock({ store: new RedisStore(client), ttlMs: 5_000 });
  let answeredAt = Number.NaN;
  let struck: Promise<unknown> | undefined;
  const server = framework.makeServer({
    lock,
    guard,
    async handler(turn) {
      // The next command about this user is the release, or the complete.
      await fault.strike({
        proxy,
        server: { port: sharedRedisPort(), pause() {}, resume() {} },
        isOurs: (argv) => argv.some((argument) => argument.includes(user)),
        whenStruck(happened) {
          struck = happened;
        },
        later() {},
      });
      answeredAt = performance.now();
      turn.answer(201, { order: 7 });
    },
  });
  server.listen(0, "127.0.0.1");
  await once(server, "listening");
  const http = openClient(1, (server.address() as AddressInfo).port);
  return {
    submit: () => http.call({ headers: { "x-user": user, "idempotency-key": user } }).reply,
    answeredAt: () => answeredAt,
    struck: () => struck,
    async close() {
      http.close();
      server.close();
      await once(server, "close");
    },
  };
}
