import { afterAll, expect, test } from "vitest";
import { endAll } from "../../support/child.ts";
import { command } from "../../support/command.ts";
import { freePort } from "../../support/free-port.ts";
import { forTest, startRedis } from "../../support/redis-server.ts";
import { until } from "../../support/until.ts";
import { runExample } from "./run-example.ts";

afterAll(endAll);

const boot = (REDIS_URL: string) => runExample("examples/boot.ts", { env: { REDIS_URL } });

test("a process at boot waits for a Redis that comes up later", async () => {
  const port = await freePort();
  const booting = boot(`redis://127.0.0.1:${port}`);
  const isRefused = async () => booting.output().includes("ECONNREFUSED");
  await until(isRefused, { what: "the first connection to be refused", boundMs: 60_000 });
  await forTest(startRedis({ port }));
  expect(await booting.ended, booting.output()).toBe(0);
  expect(booting.output()).toMatch(/redis: .*ECONNREFUSED[\s\S]*ready\n$/);
});

test("a process at boot does not wait for a permission that is missing", async () => {
  const { port } = await forTest(startRedis());
  await command(port, "acl", "setuser", "nobody", "on", ">pass", "~*", "+@all", "-eval");
  const refused = boot(`redis://nobody:pass@127.0.0.1:${port}`);
  expect(await refused.ended).toBe(1);
  expect(refused.output()).toContain("MISCONFIGURED");
});
