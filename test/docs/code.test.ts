import { afterAll, beforeAll, describe, expect, test } from "vitest";
import { command } from "../support/command.ts";
import { freePort } from "../support/free-port.ts";
import { type RedisServer, startRedis } from "../support/redis-server.ts";
import { until } from "../support/until.ts";
import { atHand } from "./at-hand.ts";
import { ReaderProject } from "./reader-project.ts";
import { blocks, blockUnder } from "./readme.ts";

/** The application of the reader whose tests are shown. */
const appOfReader = `
import express from "express";
import type { SubmitLock } from "submit-lock";
import { submitGuard } from "submit-lock/express";
export function createApp(lock: SubmitLock): express.Express {
  const app = express();
  const guard = submitGuard({ lock, userId: (req) => req.get("x-user-id") });
  app.post("/orders", guard.protect(async (_req, res) => {
    res.status(201).json({ placed: true });
  }));
  return app;
}
`;

/** Beside the store that is shown: it holds, contends and releases as a lock expects. */
const useOfMapStore = `
import { SubmitLock } from "submit-lock";
const lock = new SubmitLock({ store: new MapStore(), ttlMs: 150, maxHoldMs: 5_000 });
await lock.check();
const attempt = await lock.acquire("42");
if (attempt.outcome !== "acquired") throw new Error(attempt.outcome);
await new Promise((resolve) => setTimeout(resolve, 400));
console.log((await lock.acquire("42")).outcome, await attempt.lease.release());
console.log((await lock.acquire("42")).outcome);
await lock.close({ timeoutMs: 0 });
`;

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

describe("the code of the README", () => {
  test("compiles", async () => {
    project.write("app.ts", appOfReader);
    project.write("at-hand.ts", atHand);
    const code = blocks.filter(({ language }) => language === "ts");
    expect(code.length).toBeGreaterThan(8);
    for (const [at, block] of code.entries())
      project.write(`block-${at}.ts`, `${block.code}export {};\n`);
    expect(await project.typeErrors()).toBe("");
  });

  test.each(["Express", "Koa"])("has a quick start for %s of at most 20 lines", (framework) => {
    const lines = blockUnder(framework)
      .split("\n")
      .filter((line) => line.trim() !== "");
    expect(lines.length).toBeLessThanOrEqual(20);
  });

  test.each(["Express", "Koa"])("places one order of ten on %s", async (framework) => {
    const file = `quick-start-${framework}.ts`;
    const port = await freePort();
    project.write(file, blockUnder(framework));
    project.start(file, { PORT: `${port}`, REDIS_URL: redis.url });
    const submit = async (user: string) => {
      const headers = { "x-user-id": user };
      const answer = await fetch(`http://127.0.0.1:${port}/orders`, { method: "POST", headers });
      await answer.text();
      return answer.status;
    };
    const answers = () =>
      submit("early").then(
        () => true,
        () => false,
      );
    await until(answers, { what: "the quick start" });
    // Ten connections that are open already, so that the ten submissions arrive at once.
    await Promise.all(Array.from({ length: 10 }, () => submit("")));

    const statuses = await Promise.all(Array.from({ length: 10 }, () => submit("42")));
    expect(statuses.sort()).toEqual([201, ...Array(9).fill(409)]);
    expect(await submit("")).toBe(401);
    const noKeyLeft = async () => ((await command(redis.port, "keys", "*")) as []).length === 0;
    await until(noKeyLeft, { what: "every key to be gone" });
  });

  test("shows the lock alone", async () => {
    project.write("alone.ts", blockUnder("The lock alone"));
    const output = await project.run("alone.ts");
    expect(output).toMatch(/^lock:account:42 \d+[\d.]* false\nreleased\n42\n$/);
  });

  test("shows a submission without HTTP", async () => {
    project.write("once-alone.ts", blockUnder("Once without HTTP"));
    const output = await project.run("once-alone.ts");
    expect(output).toBe("recorded\nsettled 3\nsettled 3, as before\n");
  });

  test("shows how to test a service", async () => {
    project.write("app.ts", appOfReader);
    project.write("service.ts", blockUnder("Testing your service"));
    expect(await project.run("service.ts")).toBe("");
  });

  test("shows a store that works", async () => {
    project.write("map-store.ts", blockUnder("Another store") + useOfMapStore);
    expect(await project.run("map-store.ts")).toBe("contended released\nacquired\n");
  });
});
