import assert from "node:assert/strict";
import { spawnSync } from "node:child_process";
import { mkdtempSync, readFileSync, rmSync, writeFileSync } from "node:fs";
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
 * a shop. A healthy one, with contention, repeats and a deploy, is no alert's business. Then the event
 * of each alert happens once, most of them at the first clicks of a process: it fires within the time
 * that the page names, and ends. Every query of the board has to give data. A minute of the alerts is
 * two seconds here, and the shop's bounds are a tenth of the defaults.
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
const minuteMs = 2_000;
const folder = mkdtempSync(join(tmpdir(), "submit-lock-prometheus-"));
const redis = await startServer(serverBinary());
const [port, metricsPort] = [await freePort(), await freePort()];
let shop = startShop();
let shopUrl = await urlOf(shop);
const prometheus = startPrometheus();
/** When each alert was first seen firing since the event that is played began. */
let fired = new Map<string, number>();
/** When an alert was last seen firing, or Prometheus did not answer. */
let firedAt = 0;
let isOver = false;
const watching = watchAlerts();
try {
  const isReady = () =>
    get("query", { query: "up == 1" }).then(
      ({ result }) => result[0],
      () => {},
    );
  await prometheus.until(isReady, "to have scraped the shop");
  const fromMs = Date.now();
  await healthy();
  await strandedOnce();
  await orderedTwice();
  await hangs();
  await outage();
  await repliesLost();
  await lookAtBoard(fromMs);
} finally {
  isOver = true;
  await watching;
  prometheus.kill();
  await prometheus.ended;
  await shop.kill();
  await redis.stop();
  rmSync(folder, { recursive: true, force: true });
}

function startShop(): Child<{ port: number }> {
  const script = new URL("./shop-process.ts", import.meta.url);
  return new Child<{ port: number }>(script, [`${redis.port}`, `${metricsPort}`]);
}

async function urlOf(child: Child<{ port: number }>): Promise<string> {
  return `http://127.0.0.1:${(await child.next()).port}`;
}

/** A new process, whose first clicks are what comes next: no scrape has seen its series. */
async function deploy(): Promise<void> {
  await shop.kill();
  shop = startShop();
  shopUrl = await urlOf(shop);
}

/** With the documented configuration, and a faster clock. */
function startPrometheus(): Program {
  const config = readFileSync(`${dashboards}prometheus.yml`, "utf8")
    .replace("scrape_interval: 15s", "scrape_interval: 500ms\n  evaluation_interval: 500ms")
    .replace("127.0.0.1:9464", `127.0.0.1:${metricsPort}`);
  writeFileSync(join(folder, "prometheus.yml"), config);
  const alerts = readFileSync(`${dashboards}alerts.yaml`, "utf8")
    .replace(/\b(\d+)m\b/g, (_, minutes) => `${(Number(minutes) * minuteMs) / 1_000}s`)
    .replaceAll('le=~"30(', 'le=~"2.5(')
    .replace("> 45", "> 4.5");
  writeFileSync(join(folder, "alerts.yaml"), alerts);
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

async function watchAlerts(): Promise<void> {
  for (; !isOver; await sleep(100)) {
    const { alerts } = await get("alerts", {}).catch(() => ({ alerts: undefined }));
    const firing = alerts
      ?.filter(({ state }) => state === "firing")
      .map(({ labels }) => labels.alertname.replace("SubmitLock", ""));
    if (firing?.length !== 0) firedAt = performance.now();
    for (const name of firing ?? []) if (!fired.has(name)) fired.set(name, performance.now());
  }
}

/**
 * Plays an event, and waits until its alerts have fired, each within so many minutes of the alerts
 * (and three evaluations), and have ended. No other one fires.
 */
async function play(
  what: string,
  event: () => Promise<unknown>,
  within: Readonly<Record<string, number>>,
): Promise<void> {
  fired = new Map();
  const from = performance.now();
  await event();
  const names = Object.keys(within);
  const haveFired = () => names.every((name) => fired.has(name));
  const boundMs = Math.max(...Object.values(within)) * minuteMs + 10_000;
  await until(haveFired, { what: `${names} at ${what}, and not ${[...fired.keys()]}`, boundMs });
  const tookS = (name: string) => ((fired.get(name) ?? 0) - from) / 1_000;
  const endsAt = performance.now();
  // Nothing fires for a while: behind a deploy, an alert pauses for a scrape between its two halves,
  // the reset of the series in its window and the series that was not there a window ago.
  const haveEnded = () => performance.now() - firedAt > 3_000;
  await until(haveEnded, { what: `the end of ${names}`, boundMs: 17 * minuteMs });
  const others = [...fired.keys()].filter((name) => within[name] === undefined);
  assert.deepEqual(others, [], `${what} is no event of ${others}`);
  const endS = (firedAt - endsAt) / 1_000;
  const told = names.map((name) => `${name} after ${tookS(name).toFixed(1)} s`);
  console.log(`  ${what}: ${told.join(", ")}; all ended ${endS.toFixed(1)} s later`);
  for (const name of names) {
    assert(tookS(name) * 1_000 <= (within[name] ?? 0) * minuteMs + 3_000, `${name} is late`);
  }
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

/** Eight customers, while `meanwhile` happens. */
async function busy(meanwhile: () => Promise<unknown>): Promise<void> {
  let isOpen = true;
  const customers = Array.from({ length: 8 }, async () => {
    for (; isOpen; await sleep(50)) await visit().catch(() => {});
  });
  await meanwhile();
  isOpen = false;
  await Promise.all(customers);
}

async function healthy(): Promise<void> {
  await busy(async () => {
    await sleep(12_000);
    await deploy();
    await sleep(12_000);
  });
  assert.deepEqual([...fired.keys()], [], "a healthy shop");
  console.log("  a healthy shop with contention, repeats and a deploy: no alert");
}

/** A lock of another program, at the first click of a process: it is given maxHoldMs. */
async function strandedOnce(): Promise<void> {
  await deploy();
  const click = async () => {
    const user = freshUser();
    await command(redis.port, "set", `lock:submit:${user}`, "1");
    assert.equal(await submit("/refunds", { user }), 409);
  };
  await play("one customer behind a lock without an expiry", click, { UsersStranded: 0 });
}

/** An order whose lock another program deletes, and a retry of it. */
async function orderedTwice(): Promise<void> {
  await deploy();
  const twice = async () => {
    const who = { user: freshUser(), key: freshUser() };
    const first = submit("/orders", { ...who, workMs: 1_500 });
    await sleep(300);
    await command(redis.port, "del", `lock:submit:${who.user}`);
    await Promise.all([first, submit("/orders", { ...who, workMs: 100 })]);
  };
  await play("an old program's DEL under one order", twice, { LeaseLost: 1, OrderedTwice: 1 });
}

async function hangs(): Promise<void> {
  await deploy();
  const order = () => submit("/refunds", { workMs: 7_000 });
  await play("one order beyond maxHoldMs", order, { NearMaxHold: 4, LeaseLost: 4 });
}

/** One order is under way and one click comes when Redis goes away, and nobody clicks after that. */
async function outage(): Promise<void> {
  await deploy();
  await submit("/orders");
  const away = async () => {
    const underWay = submit("/orders", { workMs: 300 });
    await sleep(200);
    redis.pause();
    await Promise.all([underWay, submit("/refunds"), sleep(8_000)]);
    redis.resume();
  };
  const within = { RedisAway: 3, RetireAbandoned: 2, AnswersNotKept: 4 };
  await play("one click and one order in an outage", away, within);
}

/** Two pauses a second: with fewer, a fast machine has more than 99 attempts for each late reply. */
async function repliesLost(): Promise<void> {
  const late = () =>
    busy(async () => {
      for (let pause = 0; pause < 52; pause++) {
        redis.pause();
        await sleep(200);
        redis.resume();
        await sleep(300);
      }
    });
  await play("replies that are late", late, { RepliesLost: 12 });
}

async function lookAtBoard(fromMs: number): Promise<void> {
  for (const { queries, title } of panels) {
    for (const query of queries) {
      const values = await valuesOf(query, fromMs);
      assert(values.length > 0, `no data for ${title}: ${query}`);
      const most = Math.max(...values);
      console.log(`  ${title}: at most ${Number(most.toPrecision(3))}`);
    }
  }
}
