import { writeFileSync } from "node:fs";
import { setTimeout as sleep } from "node:timers/promises";
import { test } from "vitest";
import { command } from "../command.ts";
import { sharedRedisPort, startRedis } from "../redis-server.ts";

test("a test that starts a server and is at work for longer than it is let", async () => {
  const { pid } = await startRedis();
  const info = String(await command(sharedRedisPort(), "info", "server"));
  const [, shared] = /process_id:(\d+)/.exec(info) ?? [];
  // Until it has nothing more to report: a worker that does would notice that the runner is gone.
  await sleep(2_000);
  writeFileSync(process.env["PIDS_FILE"] ?? "", `<${pid}><${shared}><${process.pid}>`);
  await sleep(600_000);
}, 600_000);
