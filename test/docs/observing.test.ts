import { afterAll, beforeAll, expect, test } from "vitest";
import { freePort } from "../support/free-port.ts";
import { type RedisServer, startRedis } from "../support/redis-server.ts";
import { until } from "../support/until.ts";
import { page } from "./page.ts";
import { ReaderProject } from "./reader-project.ts";

let project: ReaderProject;
let redis: RedisServer;
beforeAll(async () => {
  project = new ReaderProject();
  redis = await startRedis();
});
afterAll(async () => {
  project.remove();
  await redis.stop();
});

/**
 * Below the code that is shown: ten orders a second, one after another. A machine that is busy with
 * other tests may be late with one; what became of it is in the metrics.
 */
const orders = `
for (;;) {
  await lock.withLock("42", async () => {}).catch(() => {});
  await new Promise((resolve) => setTimeout(resolve, 100));
}
`;

test("the code that is shown exports metrics to Prometheus", async () => {
  const port = await freePort();
  const code = page("docs/operations/observing.md").blockUnder("OpenTelemetry");
  project.write("observed.ts", code + orders);
  await project.start("observed.ts", { METRICS_PORT: `${port}`, REDIS_URL: redis.url });
  const scrape = () =>
    fetch(`http://127.0.0.1:${port}/metrics`).then(
      (answer) => answer.text(),
      () => "",
    );
  const count = /^submit_lock_hold_duration_count\{.*submit_lock_outcome="released".*\} \d/m;
  const text = await until(
    async () => {
      const found = await scrape();
      return count.test(found) && found;
    },
    { what: "an order in the metrics", boundMs: 60_000, everyMs: 100 },
  );
  expect(text).toMatch(/^submit_lock_lease_losses_total\{.*\} 0$/m);
  expect(text).not.toContain("lock:submit:42");
});
