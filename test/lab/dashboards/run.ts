import assert from "node:assert/strict";
import { spawnSync } from "node:child_process";
import { copyFileSync, mkdtempSync, readFileSync, rmSync, writeFileSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { setTimeout as sleep } from "node:timers/promises";
import { asSent, dashboards, panels } from "../../support/board.ts";
import { Child, Program } from "../../support/child.ts";
import { command } from "../../support/command.ts";
import { freePort } from "../../support/free-port.ts";
import { freshUser } from "../../support/ids.ts";
import { installOnDebian, serverBinary } from "../../support/server-binary.ts";
import { type RedisServer, startServer } from "../../support/server-process.ts";
import { until } from "../../support/until.ts";

/** A series of an answer: its labels, and its values over time. */
interface Series {
  readonly metric: Readonly<Record<string, string>>;
  readonly values: readonly (readonly [number, string])[];
}

/** A Prometheus of our own on loopback, with the documented configuration and a faster clock. */
export class Prometheus {
  readonly #child: Program;
  readonly #url: string;
  readonly #folder: string;

  private constructor(child: Program, url: string, folder: string) {
    this.#child = child;
    this.#url = url;
    this.#folder = folder;
  }

  /** @param target the port of the process that it scrapes once a second. */
  static async start(target: number): Promise<Prometheus> {
    const folder = mkdtempSync(join(tmpdir(), "submit-lock-prometheus-"));
    const documented = readFileSync(`${dashboards}prometheus.yml`, "utf8");
    const config = documented
      .replace("scrape_interval: 15s", "scrape_interval: 1s\n  evaluation_interval: 1s")
      .replace("127.0.0.1:9464", `127.0.0.1:${target}`);
    writeFileSync(join(folder, "prometheus.yml"), config);
    copyFileSync(`${dashboards}alerts.yaml`, join(folder, "alerts.yaml"));
    const port = await freePort();
    const args = [
      `--config.file=${join(folder, "prometheus.yml")}`,
      `--storage.tsdb.path=${join(folder, "data")}`,
      `--web.listen-address=127.0.0.1:${port}`,
      "--log.level=error",
    ];
    const child = new Program("prometheus", args);
    const prometheus = new Prometheus(child, `http://127.0.0.1:${port}`, folder);
    await child.until(() => prometheus.#isReady(), "to be ready");
    return prometheus;
  }

  async #isReady(): Promise<boolean> {
    const answer = await fetch(`${this.#url}/-/ready`).catch(() => undefined);
    return answer?.ok === true;
  }

  /** What a query gives over the time from one moment to another, a value a second. */
  async range(query: string, fromMs: number, toMs: number): Promise<readonly Series[]> {
    const times = { start: `${fromMs / 1_000}`, end: `${toMs / 1_000}`, step: "1" };
    const { result } = await this.#get("query_range", { query, ...times });
    return result as readonly Series[];
  }

  /** The names of the alerts that fire now. */
  async firing(): Promise<string[]> {
    const { alerts } = await this.#get("alerts", {});
    const all = alerts as { state: string; labels: { alertname: string } }[];
    return all.filter(({ state }) => state === "firing").map(({ labels }) => labels.alertname);
  }

  async #get(path: string, query: Record<string, string>): Promise<Record<string, unknown>> {
    const answer = await fetch(`${this.#url}/api/v1/${path}?${new URLSearchParams(query)}`);
    const { data, error } = (await answer.json()) as {
      data?: Record<string, unknown>;
      error?: string;
    };
    if (data === undefined) throw new Error(`${path} ${query["query"] ?? ""}: ${error}`);
    return data;
  }

  async stop(): Promise<void> {
    this.#child.kill();
    await this.#child.ended;
    rmSync(this.#folder, { recursive: true, force: true });
  }
}

const ADVICE = `\`npm run lab -- dashboards\` needs prometheus and promtool on the PATH (2.42 or newer) and found none.
  macOS           brew install prometheus
  Debian, Ubuntu  sudo apt-get install prometheus   (as root this command does it by itself)`;

/** Makes sure that `prometheus` and `promtool` are on the PATH; on Debian and Ubuntu as root it installs them. */
function requirePrometheus(): void {
  if (isThere()) return;
  // The package may start a service on port 9090, which nobody used before this line.
  if (!installOnDebian("prometheus", "prometheus") || !isThere()) throw new Error(ADVICE);
}

function isThere(): boolean {
  return ["prometheus", "promtool"].every(
    (name) => spawnSync(name, ["--version"], { stdio: "ignore", timeout: 10_000 }).status === 0,
  );
}

interface Order {
  readonly user?: string;
  readonly key?: string;
  readonly item?: number;
  readonly workMs?: number;
}

/** The shop in a process of its own, and its customers. */
class Shop {
  readonly metricsPort: number;
  /** Every user who has come. */
  readonly users: string[] = [];
  readonly statuses: Record<number, number> = {};
  readonly #child: Child<{ port: number }>;
  readonly #url: string;

  private constructor(child: Child<{ port: number }>, url: string, metricsPort: number) {
    this.#child = child;
    this.#url = url;
    this.metricsPort = metricsPort;
  }

  static async start(redisPort: number): Promise<Shop> {
    const metricsPort = await freePort();
    const script = new URL("./shop-process.ts", import.meta.url);
    const child = new Child<{ port: number }>(script, [`${redisPort}`, `${metricsPort}`]);
    const { port } = await child.next();
    return new Shop(child, `http://127.0.0.1:${port}`, metricsPort);
  }

  /** An order, or a refund, which has no submission id. Resolves with its status. */
  async submit(path: "/orders" | "/refunds", order: Order = {}): Promise<number> {
    const { item = 1, key = freshUser(), user = this.newUser(), workMs = 5 } = order;
    const answer = await fetch(this.#url + path, {
      method: "POST",
      headers: {
        "content-type": "application/json",
        "idempotency-key": key,
        "x-user-id": user,
        "x-work-ms": `${workMs}`,
      },
      body: JSON.stringify({ item }),
    });
    await answer.arrayBuffer();
    this.statuses[answer.status] = (this.statuses[answer.status] ?? 0) + 1;
    return answer.status;
  }

  newUser(): string {
    this.users.push(freshUser());
    return this.users.at(-1) as string;
  }

  /** What one customer does: an order, a second click on it, the order again, another one with its key, a refund. */
  async visit(): Promise<void> {
    const [user, key] = [this.newUser(), freshUser()];
    const first = this.submit("/orders", { user, key, workMs: 30 });
    const second = this.submit("/refunds", { user });
    await Promise.all([first, second]);
    await this.submit("/orders", { user, key });
    await this.submit("/orders", { user, key, item: 2 });
    await this.submit("/refunds", { user });
  }

  /** What the process exports. */
  async metrics(): Promise<string> {
    const answer = await fetch(`http://127.0.0.1:${this.metricsPort}/metrics`);
    return await answer.text();
  }

  async stop(): Promise<void> {
    await this.#child.kill();
  }
}

/**
 * `npm run lab -- dashboards`: promtool's tests of the alerts, and then a real Prometheus that scrapes a
 * shop under load and through an outage of Redis: every query of the board has to give data, and
 * what is exported has to be the same however many users there were, and tell of none of them.
 */
requirePrometheus();
for (const args of [
  ["check", "config", "prometheus.yml"],
  ["test", "rules", "tests.yaml"],
]) {
  const { status } = spawnSync("promtool", args, { cwd: dashboards, stdio: "inherit" });
  assert.equal(status, 0, `promtool ${args.join(" ")}`);
}

const late = setTimeout(() => {
  console.error("This took longer than 3 minutes.");
  process.exit(1);
}, 180_000);
const redis = await startServer(serverBinary());
const shop = await Shop.start(redis.port);
const prometheus = await Prometheus.start(shop.metricsPort);
try {
  await observe(redis);
} finally {
  await prometheus.stop();
  await shop.stop();
  await redis.stop();
  clearTimeout(late);
}

async function observe(server: RedisServer): Promise<void> {
  const fromMs = Date.now();
  const isScraped = async () => (await prometheus.range("up == 1", fromMs, Date.now())).length > 0;
  await until(isScraped, { what: "the first scrape", boundMs: 30_000, everyMs: 200 });
  let isOpen = true;
  const customers = Array.from({ length: 8 }, async () => {
    while (isOpen) {
      await shop.visit();
      await sleep(50);
    }
  });
  await sleep(5_000);
  console.log(`Load: ${JSON.stringify(shop.statuses)}`);

  // As the shop of the story had it: a lock of somebody else, for two hours.
  const stranded = shop.newUser();
  await command(server.port, "set", `lock:submit:${stranded}`, "1", "px", "7200000");
  assert.equal(await shop.submit("/refunds", { user: stranded }), 409);

  // Replies that are late, but within the budget of an attempt.
  for (let pause = 0; pause < 4; pause++) {
    server.pause();
    await sleep(200);
    server.resume();
    await sleep(800);
  }

  // Orders that are under way when Redis goes away for longer than ttlMs, and than a retire is patient.
  const underWay = Array.from({ length: 20 }, () => shop.submit("/refunds", { workMs: 4_000 }));
  await sleep(200);
  server.pause();
  await sleep(5_000);
  server.resume();
  await Promise.all(underWay);
  await sleep(5_000);
  isOpen = false;
  await Promise.all(customers);
  console.log(`With an outage: ${JSON.stringify(shop.statuses)}`);

  const noData: string[] = [];
  for (const { queries, title } of panels) {
    for (const query of queries) {
      const series = await prometheus.range(asSent(query, "5s"), fromMs, Date.now());
      const values = series.flatMap((each) => each.values.map(([, value]) => Number(value)));
      const numbers = values.filter((value) => !Number.isNaN(value));
      const most = Math.max(...numbers);
      console.log(`  ${title}: ${series.length} series, at most ${Number(most.toPrecision(3))}`);
      if (numbers.length === 0) noData.push(`${title}: ${query}`);
    }
  }
  const [refused] = panels.filter(({ title }) => title === "How long refused users stay locked");
  const longest = asSent(refused?.queries.at(-1) ?? "", "5s");
  const seconds = (await prometheus.range(longest, fromMs, Date.now())).flatMap(({ values }) =>
    values.map(([, value]) => Number(value)),
  );
  assert(
    seconds.some((each) => each > 600),
    `the two hours of the stranded user are seen: ${seconds}`,
  );
  assert.deepEqual(noData, [], "every query of the board gives data");
  const firing = await until(
    async () => {
      const names = new Set(await prometheus.firing());
      const expected = ["SubmitLockLeaseLost", "SubmitLockRetireAbandoned"];
      return expected.every((name) => names.has(name)) && [...names];
    },
    { what: "the alerts of an outage", everyMs: 500 },
  );
  console.log(`Alerts that fire: ${firing.join(", ")}`);

  const before = await shop.metrics();
  const known = shop.users.length;
  while (shop.users.length < known + 1_000) {
    await Promise.all(Array.from({ length: 20 }, () => shop.visit()));
  }
  const after = await shop.metrics();
  const series = (text: string) =>
    text.split("\n").filter((line) => line.startsWith("submit_lock"));
  assert.equal(series(after).length, series(before).length, "the number of series stays the same");
  assert(!/[0-9a-f]{8}-[0-9a-f]{4}-/.test(after), "no UUID is exported");
  for (const user of shop.users) assert(!after.includes(user), "no user is exported");
  console.log(
    `${shop.users.length} users, ${series(after).length} series, none of them of a user.`,
  );
}
