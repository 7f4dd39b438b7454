import assert from "node:assert/strict";
import { spawnSync } from "node:child_process";
import { setTimeout as sleep } from "node:timers/promises";
import { asSent, dashboards, panels } from "../../support/board.ts";
import { command } from "../../support/command.ts";
import { serverBinary } from "../../support/server-binary.ts";
import { type RedisServer, startServer } from "../../support/server-process.ts";
import { until } from "../../support/until.ts";
import { Prometheus, requirePrometheus } from "./prometheus.ts";
import { Shop } from "./shop.ts";

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
