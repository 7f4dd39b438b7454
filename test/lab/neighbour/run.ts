import { randomUUID } from "node:crypto";
import { Agent, request } from "node:http";
import { setTimeout as sleep } from "node:timers/promises";
import { parseArgs } from "node:util";
import { Child } from "../../support/child.ts";
import { command } from "../../support/command.ts";
import { startMasters } from "../../support/masters.ts";
import { serverBinary } from "../../support/server-binary.ts";
import { startServer } from "../../support/server-process.ts";
import { chosen, setting } from "../laboratory.ts";
import type { FromShop, Route } from "./shop-process.ts";

/*
 * One customer does what a signed-in customer can, while twenty others order: with the guard, on the
 * same shop without it, and with a hand-written lock.
 */

const others = 20;
const forMs = setting("NEIGHBOUR_MS", 8_000);
const share = setting("NEIGHBOUR_SHARE", 1);
const many = (count: number) => Math.max(1, Math.round(count * share));

interface Order {
  readonly user: string;
  readonly key?: string;
  readonly body?: object | string;
  readonly headers?: Record<string, string>;
  /** Gives up after so long. */
  readonly abortMs?: number;
}

type Post = (order: Order) => Promise<number>;

interface Attack {
  readonly name: string;
  run(post: Post, until: number): Promise<unknown>;
}

/** So many clients repeat a request until the time is over. */
async function clients(count: number, until: number, each: () => Promise<unknown>): Promise<void> {
  const client = async () => {
    while (performance.now() < until) await each();
  };
  await Promise.all(Array.from({ length: many(count) }, client));
}

const user = "mallory";

/** Small repeats of one order that takes 5 s, with an answer of so many bytes. */
const waits = (count: number, bytes: number) => async (post: Post) => {
  const key = randomUUID();
  const order = { user, key, body: { bytes, holdMs: 5_000 } };
  const first = post(order);
  await sleep(200);
  const repeats = Array.from({ length: many(count) }, () => post(order));
  await Promise.all([first, ...repeats]);
};

const attacks: readonly Attack[] = [
  { name: "nothing", run: (_post, until) => sleep(until - performance.now()) },
  { name: "waits, 60 kB", run: waits(3_000, 60_000) },
  { name: "waits, 1 MB", run: waits(300, 1_000_000) },
  {
    name: "repeats a kept answer of 60 kB",
    async run(post, until) {
      const order = { user, key: randomUUID(), body: { bytes: 60_000 } };
      await post(order);
      await clients(64, until, () => post(order));
    },
  },
  {
    name: "fills: 64 kB of quotation marks",
    run: (post, until) =>
      clients(8, until, () =>
        post({ user, key: randomUUID(), body: { bytes: 32_000, holdMs: 0, text: '"' } }),
      ),
  },
  {
    name: "is refused: keys, content, contended",
    async run(post, until) {
      const key = randomUUID();
      await post({ user, key });
      await clients(16, until, () => post({ user, key: "a b" }));
      await clients(16, until + 1_000, () => post({ user, key, body: { other: 1 } }));
    },
  },
  {
    name: "aborts",
    run: (post, until) =>
      clients(64, until, () => post({ user, key: randomUUID(), abortMs: 10 * Math.random() })),
  },
  {
    name: "unpacks: 60 levels, 60 kB of members",
    run: (post, until) => {
      const deep = JSON.parse(`${'{"a":'.repeat(60)}1${"}".repeat(60)}`);
      const members = Object.fromEntries(
        Array.from({ length: 5_000 }, (_, at) => [`m${5_000 - at}`, at]),
      );
      return clients(8, until, () => post({ user, key: randomUUID(), body: { deep, members } }));
    },
  },
  {
    name: "sends odd headers",
    run: (post, until) =>
      clients(16, until, () =>
        post({
          user,
          key: "k".repeat(255),
          headers: { "accept-encoding": "gzip;q=0,".repeat(400), accept: "a/b,".repeat(1_000) },
        }),
      ),
  },
];

const { values } = parseArgs({
  allowPositionals: true,
  options: { library: { type: "string", default: "ioredis" }, cluster: { type: "boolean" } },
});

interface Row {
  readonly attack: string;
  readonly route: Route;
  readonly orders: number;
  readonly failed: number;
  readonly p50: number;
  readonly p99: number;
  readonly [more: string]: string | number;
}

/** Redis under the shop: `ports` of one server or of a Cluster. */
async function play(attack: Attack, route: Route, ports: readonly number[]): Promise<Row> {
  const shop = new Child<FromShop, { asks: "waiting" }>(
    new URL("./shop-process.ts", import.meta.url),
    [ports.join(), route, values.library],
  );
  const { port = 0 } = await shop.next(60_000, (message) => "port" in message);
  const agents = [new Agent({ keepAlive: true }), new Agent({ keepAlive: true })] as const;
  const post = posting(port, agents[0]);
  const order = posting(port, agents[1]);
  const sentBefore = await sentBy(ports);
  const until = performance.now() + forMs;
  const seen: { status: number; ms: number }[] = [];
  const customer = async (_: unknown, at: number) => {
    await sleep(10 * at);
    while (performance.now() < until) {
      const from = performance.now();
      const status = await order({ user: `customer-${at}`, key: randomUUID() });
      seen.push({ status, ms: performance.now() - from });
      await sleep(100);
    }
  };
  await Promise.all([attack.run(post, until), ...Array.from({ length: others }, customer)]);
  shop.send({ asks: "waiting" });
  const { waiting = 0 } = await shop.next(60_000, (message) => "waiting" in message);
  const sent = (await sentBy(ports)) - sentBefore;
  shop.signal("SIGKILL");
  await shop.exit;
  for (const agent of agents) agent.destroy();
  const sorted = seen.map(({ ms }) => ms).sort((one, other) => one - other);
  const at = (part: number) => Math.round(sorted[Math.floor(part * (sorted.length - 1))] ?? 0);
  const failed = seen.filter(({ status }) => status !== 201).length;
  return {
    ...{ attack: attack.name, route, orders: seen.length, failed, p50: at(0.5), p99: at(0.99) },
    ...{ "Redis sent, MB": Number((sent / 1e6).toFixed(1)), "most waiting": waiting },
  };
}

function posting(port: number, agent: Agent): Post {
  return ({ abortMs, body = {}, headers = {}, key, user }) =>
    new Promise((resolve) => {
      const sent = request(
        {
          ...{ host: "127.0.0.1", port, agent, method: "POST", path: "/orders" },
          headers: {
            ...{ "content-type": "application/json", "x-user": user, ...headers },
            ...(key !== undefined && { "idempotency-key": key }),
          },
        },
        (response) => {
          response.resume().on("close", () => resolve(response.statusCode ?? 0));
        },
      );
      sent.on("error", () => resolve(0));
      sent.end(JSON.stringify(body));
      if (abortMs !== undefined) setTimeout(() => sent.destroy(), abortMs);
    });
}

async function sentBy(ports: readonly number[]): Promise<number> {
  const infos = await Promise.all(ports.map((port) => command(port, "info", "stats")));
  const sent = infos.map((info) => Number(/total_net_output_bytes:(\d+)/.exec(`${info}`)?.[1]));
  return sent.reduce((sum, bytes) => sum + bytes, 0);
}

export async function run(): Promise<void> {
  const routes: Route[] = ["bare", "guard"];
  if (!values.cluster && values.library === "ioredis") routes.push("hand-written");
  const rows: Row[] = [];
  for (const attack of chosen(attacks)) {
    for (const route of routes) {
      const args = ["--maxmemory", "1gb", "--maxmemory-policy", "noeviction"];
      const nodes = values.cluster
        ? await startMasters(serverBinary(), 3, args)
        : [await startServer(serverBinary(), { args })];
      try {
        rows.push(
          await play(
            attack,
            route,
            nodes.map((node) => node.port),
          ),
        );
      } finally {
        await Promise.all(nodes.map((node) => node.stop()));
      }
      console.log(JSON.stringify(rows.at(-1)));
    }
  }
  console.table(rows);
  const failed = rows.filter(({ failed, route }) => route === "guard" && failed > 0);
  if (failed.length === 0) {
    console.log("No order of the others was refused.");
    return;
  }
  console.log(
    `Orders of the others were refused: ${failed.map(({ attack }) => attack).join(", ")}`,
  );
  process.exitCode = 1;
}
