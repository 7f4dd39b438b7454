import { setTimeout as sleep } from "node:timers/promises";
import { afterEach, describe, expect, test } from "vitest";
import { type Lease, RedisStore, type SubmitLock } from "../../src/index.ts";
import { closeClients, untilReady } from "../support/clients.ts";
import { command } from "../support/command.ts";
import { freshUser } from "../support/ids.ts";
import { closeLocks, openLock } from "../support/locks.ts";
import { nodeRedis, nodeRedisCluster } from "../support/node-redis.ts";
import { type RedisProxy, startProxy } from "../support/proxy.ts";
import { startCluster } from "../support/redis-cluster.ts";
import { forTest, sharedRedisPort } from "../support/redis-server.ts";
import { until } from "../support/until.ts";
import { takePulse } from "./fixture.ts";

/** Of each run of the suite; the nightly workflow has more. */
const resets = Number(process.env["RESETS"] ?? 20);
const callers = 12;
/** An owner that no caller knows. */
const stranger = "00000000-0000-4000-8000-000000000000";
const times = { ttlMs: 60_000, acquireTimeoutMs: 1_000, commandTimeoutMs: 200 };

afterEach(async () => {
  await closeLocks();
  closeClients();
});

interface Site {
  readonly proxies: readonly RedisProxy[];
  /** Two, as two processes would have. */
  readonly locks: readonly [SubmitLock, SubmitLock];
  /** Of all servers. */
  keys(pattern: string): Promise<string[]>;
  /** Another process takes the key. */
  hold(key: string): Promise<unknown>;
}

/** What the callers met. */
class Load {
  readonly counts = { acquired: 0, contended: 0, unavailable: 0 };
  readonly wrong: string[] = [];
  slowestMs = 0;
  isOver = false;
  readonly #site: Site;
  readonly #held: string;
  readonly #shared: string;
  #holder: Lease | undefined;

  constructor(site: Site, { held, shared }: { held: string; shared: string }) {
    this.#site = site;
    this.#held = held;
    this.#shared = shared;
  }

  async call(caller: number): Promise<void> {
    const lock = this.#site.locks[caller % 2] as SubmitLock;
    for (let turn = caller; !this.isOver; turn++) {
      if (turn % 3 === 0) await this.#attempt(lock, this.#held);
      else if (turn % 3 === 1) await this.#attempt(lock, this.#shared);
      else await this.#attempt(lock, this.#held.replace("held", `fresh-${freshUser()}`));
    }
  }

  async #attempt(lock: SubmitLock, user: string): Promise<void> {
    const from = performance.now();
    const attempt = await lock.acquire(user);
    this.slowestMs = Math.max(this.slowestMs, performance.now() - from);
    this.counts[attempt.outcome]++;
    // A lock that was closed, as after a time-out of the test, answers without leaving the turn.
    if (attempt.outcome === "unavailable") await sleep(1);
    const isFresh = user !== this.#held && user !== this.#shared;
    if (attempt.outcome === "contended" && isFresh) this.wrong.push("a fresh user was contended");
    if (attempt.outcome !== "acquired") return;
    const { lease } = attempt;
    if (user === this.#held) this.wrong.push("the key of another process was granted");
    if (user === this.#shared) {
      if (this.#holder !== undefined) this.wrong.push("the shared key had two holders");
      this.#holder = lease;
    }
    await sleep(Math.random() * 5);
    if (lease.signal.aborted) this.wrong.push("a lease was lost");
    if (this.#holder === lease) this.#holder = undefined;
    const releasing = performance.now();
    const released = await lease.release();
    this.slowestMs = Math.max(this.slowestMs, performance.now() - releasing);
    if (released === "foreign") this.wrong.push(`a release found another's key`);
  }
}

async function play(site: Site): Promise<void> {
  const { keys, proxies } = site;
  const pulse = await takePulse();
  const run = freshUser();
  const [held, shared] = [`${run}-held`, `${run}-shared`];
  const heldKey = `lock:submit:${held}`;
  await site.hold(heldKey);
  const load = new Load(site, { held, shared });
  const calls = Array.from({ length: callers }, (_, caller) => load.call(caller));
  const loaded = Promise.all(calls);
  // On a busy machine it takes longer until the callers have met enough.
  const hasMet = () => Math.min(load.counts.acquired, load.counts.contended) > resets;
  for (let reset = 0; reset < (hasMet() ? resets : 10 * resets); reset++) {
    await sleep(80 + 80 * Math.random());
    for (const proxy of proxies) proxy.resetAll();
  }
  load.isOver = true;
  await Promise.race([loaded, sleep(5_000).then(() => Promise.reject(new Error("a call hangs")))]);
  expect(load.wrong).toEqual([]);
  // Otherwise nothing was found because nothing was met.
  expect(load.counts.acquired).toBeGreaterThan(resets);
  expect(load.counts.contended).toBeGreaterThan(resets);
  expect(load.slowestMs).toBeLessThan(pulse.atMost(times.acquireTimeoutMs + 1_000));
  // Less than a key's life: what is left has been deleted, and has not run out.
  const left = async () => (await keys(`*${run}*`)).filter((key) => key !== heldKey);
  await until(async () => (await left()).length === 0, {
    what: "no key to be left",
    boundMs: times.ttlMs / 4,
  });
}

describe(`P1 and P3: ${resets} resets under load, ${callers} callers`, () => {
  test("on one server, no key is granted wrongly, held twice or left", async () => {
    const proxy = await forTest(startProxy(sharedRedisPort()));
    const open = async () => {
      const client = await untilReady(nodeRedis(proxy.port));
      return openLock({ store: new RedisStore(client), ...times });
    };
    await play({
      proxies: [proxy],
      locks: [await open(), await open()],
      keys: (pattern) => keysOf(sharedRedisPort(), pattern),
      hold: (key) => command(sharedRedisPort(), "SET", key, stranger, "PX", 300_000),
    });
  });

  test("on a Cluster, no key is granted wrongly, held twice or left", async () => {
    const { ports } = await forTest(startCluster());
    const proxies = await Promise.all(ports.map((port) => forTest(startProxy(port))));
    const at = (port: number) => ({ host: "127.0.0.1", port });
    const behind = Object.fromEntries(
      ports.map((port, i) => [`127.0.0.1:${port}`, at((proxies[i] as RedisProxy).port)]),
    );
    const open = async () => {
      const own = { nodeAddressMap: behind };
      const client = nodeRedisCluster(
        proxies.map(({ port }) => port),
        {},
        own,
      );
      return openLock({ store: new RedisStore(await untilReady(client)), ...times });
    };
    await play({
      proxies,
      locks: [await open(), await open()],
      keys: async (pattern) =>
        (await Promise.all(ports.map((port) => keysOf(port, pattern)))).flat(),
      hold: async (key) => {
        for (const port of ports) {
          const set = command(port, "SET", key, stranger, "PX", 300_000);
          if ((await set.catch(() => "")) === "OK") return;
        }
      },
    });
  });
});

async function keysOf(port: number, pattern: string): Promise<string[]> {
  return (await command(port, "KEYS", pattern)) as string[];
}
