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
import { startServer } from "../../support/server-process.ts";
import { until } from "../../support/until.ts";

interface Data {
  readonly result: readonly { readonly values: readonly (readonly [number, string])[] }[];
  readonly alerts: readonly { readonly state: string; readonly labels: { alertname: string } }[];
}

const isThere = () =>
  ["prometheus", "promtool"].every(
    (name) => spawnSync(name, ["--version"], { stdio: "ignore", timeout: 10_000 }).status === 0,
  );

/**
 * `npm run lab -- dashboards`: promtool's tests of the alerts, and then a real Prometheus that scrapes
 * a shop under load and through an outage of Redis: every query of the board has to give data, and the
 * alerts of an outage fire.
 */
// The package may start a service on port 9090, which nobody used before this line.
if (!isThere() && !(installOnDebian("prometheus", "prometheus") && isThere())) {
  throw new Error(
    `\`npm run lab -- dashboards\` needs prometheus and promtool on the PATH (2.42 or newer) and found none.
  macOS           brew install prometheus
  Debian, Ubuntu  sudo apt-get install prometheus   (as root this command does it by itself)`,
  );
}
for (const args of [
  ["check", "config", "prometheus.yml"],
  ["test", "rules", "tests.yaml"],
]) {
  const { status } = spawnSync("promtool", args, { cwd: dashboards, stdio: "inherit" });
  assert.equal(status, 0, `promtool ${args.join(" ")}`);
}
const folder = mkdtempSync(join(tmpdir(), "submit-lock-prometheus-"));
const redis = await startServer(serverBinary());
const [port, metricsPort] = [await freePort(), await freePort()];
const script = new URL("./shop-process.ts", import.meta.url);
const shop = new Child<{ port: number }>(script, [`${redis.port}`, `${metricsPort}`]);
const shopUrl = `http://127.0.0.1:${(await shop.next()).port}`;
const prometheus = startPrometheus();
try {
  const isReady = () =>
    get("query", { query: "up == 1" }).then(
      ({ result }) => result[0],
      () => {},
    );
  await prometheus.until(isReady, "to have scraped the shop");
  const fromMs = Date.now();
  await outage();
  await lookAtBoard(fromMs);
  await lookAtAlerts();
} finally {
  prometheus.kill();
  await prometheus.ended;
  await shop.kill();
  await redis.stop();
  rmSync(folder, { recursive: true, force: true });
}

/** With the documented configuration and a faster clock. */
function startPrometheus(): Program {
  const config = readFileSync(`${dashboards}prometheus.yml`, "utf8")
    .replace("scrape_interval: 15s", "scrape_interval: 1s\n  evaluation_interval: 1s")
    .replace("127.0.0.1:9464", `127.0.0.1:${metricsPort}`);
  writeFileSync(join(folder, "prometheus.yml"), config);
  copyFileSync(`${dashboards}alerts.yaml`, join(folder, "alerts.yaml"));
  return new Program("prometheus", [
    `--config.file=${join(folder, "prometheus.yml")}`,
    `--storage.tsdb.path=${join(folder, "data")}`,
    `--web.listen-address=127.0.0.1:${port}`,
    "--log.level=error",
  ]);
}

async function get(path: string, query: Record<string, string>): Promise<Data> {
  const answer = await fetch(
    `http://127.0.0.1:${port}/api/v1/${path}?${new URLSearchParams(query)}`,
  );
  const { data, error } = (await answer.json()) as { data?: Data; error?: string };
  if (data === undefined) throw new Error(`${path} ${query["query"] ?? ""}: ${error}`);
  return data;
}

/** The values of a query, a second apart. */
async function valuesOf(query: string, fromMs: number): Promise<number[]> {
  const times = { start: `${fromMs / 1_000}`, end: `${Date.now() / 1_000}`, step: "1" };
  const { result } = await get("query_range", { query: asSent(query, "5s"), ...times });
  const values = result.flatMap((series) => series.values.map(([, value]) => Number(value)));
  return values.filter((value) => !Number.isNaN(value));
}

/** Resolves with its status. A refund has no submission id. */
async function submit(
  path: "/orders" | "/refunds",
  { item = 1, key = freshUser(), user = freshUser(), workMs = 5 } = {},
): Promise<number> {
  const headers = {
    "content-type": "application/json",
    "idempotency-key": key,
    "x-user-id": user,
    "x-work-ms": `${workMs}`,
  };
  const order = { method: "POST", headers, body: JSON.stringify({ item }) };
  const answer = await fetch(shopUrl + path, order);
  await answer.arrayBuffer();
  return answer.status;
}

/** An order, a second click on it, the order again, another one with its key, a refund. */
async function visit(): Promise<void> {
  const who = { user: freshUser(), key: freshUser() };
  await Promise.all([submit("/orders", { ...who, workMs: 30 }), submit("/refunds", who)]);
  await submit("/orders", who);
  await submit("/orders", { ...who, item: 2 });
  await submit("/refunds", who);
}

async function outage(): Promise<void> {
  let isOpen = true;
  const customers = Array.from({ length: 8 }, async () => {
    for (; isOpen; await sleep(50)) await visit();
  });
  await sleep(5_000);
  // As the shop of the story had it: a lock of another program, for two hours.
  const stranded = freshUser();
  await command(redis.port, "set", `lock:submit:${stranded}`, "1", "px", "7200000");
  assert.equal(await submit("/refunds", { user: stranded }), 409);
  // Replies that are late, but within the budget of an attempt.
  for (let pause = 0; pause < 4; pause++) {
    redis.pause();
    await sleep(200);
    redis.resume();
    await sleep(800);
  }
  // Orders that are under way when Redis goes away for longer than ttlMs, and than a retire is patient.
  const underWay = Array.from({ length: 20 }, () => submit("/refunds", { workMs: 4_000 }));
  await sleep(200);
  redis.pause();
  await sleep(5_000);
  redis.resume();
  await Promise.all(underWay);
  await sleep(5_000);
  isOpen = false;
  await Promise.all(customers);
}

async function lookAtBoard(fromMs: number): Promise<void> {
  for (const { queries, title } of panels) {
    for (const query of queries) {
      const values = await valuesOf(query, fromMs);
      assert(values.length > 0, `no data for ${title}: ${query}`);
      const most = Math.max(...values);
      console.log(`  ${title}: at most ${Number(most.toPrecision(3))}`);
      if (title !== "How long refused users stay locked" || query !== queries.at(-1)) continue;
      assert(most > 600, `the two hours of the stranded user are not seen: ${most}`);
    }
  }
}

async function lookAtAlerts(): Promise<void> {
  const expected = ["SubmitLockLeaseLost", "SubmitLockRetireAbandoned"];
  const areFiring = async () => {
    const { alerts } = await get("alerts", {});
    const firing = alerts.filter(({ state }) => state === "firing");
    const names = firing.map(({ labels }) => labels.alertname);
    return expected.every((name) => names.includes(name));
  };
  await until(areFiring, { what: `${expected} to fire`, everyMs: 500 });
}
