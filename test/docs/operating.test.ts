import { rmSync, writeFileSync } from "node:fs";
import { join } from "node:path";
import { afterAll, beforeAll, describe, expect, test } from "vitest";
import { RedisStore } from "../../src/index.ts";
import { closeClients, ioredis6 } from "../support/clients.ts";
import { command } from "../support/command.ts";
import { freePort } from "../support/free-port.ts";
import { closeLocks, leaseOf, openLock } from "../support/locks.ts";
import { type RedisServer, startRedis } from "../support/redis-server.ts";
import { until } from "../support/until.ts";
import { page } from "./page.ts";
import { ReaderProject } from "./reader-project.ts";

/** A shop whose orders take as long as the file HOLD is there. */
const shop = `
import { existsSync } from "node:fs";
import { setTimeout as sleep } from "node:timers/promises";
export async function cartOf(user: string | undefined): Promise<string> {
  return "cart of " + user;
}
export async function placeOrder(cart: string): Promise<{ cart: string }> {
  await sleep(50);
  while (existsSync(process.env["HOLD"] ?? "")) await sleep(20);
  return { cart };
}
`;

const patience = { acquireTimeoutMs: 5_000 };

let project: ReaderProject;
let redis: RedisServer;
let hold: string;

beforeAll(async () => {
  project = new ReaderProject();
  redis = await startRedis();
  hold = join(project.folder, "hold");
  project.write("shop.ts", shop);
});

afterAll(async () => {
  await closeLocks();
  closeClients();
  project.remove();
  await redis.stop();
});

describe("several servers", () => {
  const servers: { port: number; ended: Promise<string> }[] = [];
  const looking = () =>
    openLock({ ...patience, store: new RedisStore(ioredis6.connect(redis.port)) });

  beforeAll(async () => {
    const deploying = page("docs/operations/deploying.md");
    const shown = deploying.blockUnder("A server") + deploying.blockUnder("Shutting down");
    // Patient, for a machine that is busy with other tests.
    const patient = shown
      .replace("drainMs = 0;", "drainMs = 1_000;")
      .replace("new RedisStore(redis) }", "new RedisStore(redis), acquireTimeoutMs: 5_000 }")
      .replace("await lock.check()", "while (await lock.check().then(() => false, () => true)) {}");
    expect(patient).toMatch(/5_000 }[\s\S]*while[\s\S]*drainMs = 1_000/);
    project.write("server.ts", patient);
    for (let i = 0; i < 3; i++) {
      const port = await freePort();
      const ended = project.run("server.ts", {
        HOLD: hold,
        PORT: `${port}`,
        REDIS_URL: redis.url,
      });
      // A server that is killed rejects: its test looks at that.
      ended.catch(() => {});
      servers.push({ port, ended });
      const isReady = async () => (await ready(port)) === 200;
      await until(isReady, { what: "a server", boundMs: 60_000, everyMs: 50 });
    }
  });

  const ready = (port: number) =>
    fetch(`http://127.0.0.1:${port}/ready`).then(
      ({ status }) => status,
      () => 0,
    );

  async function click(at: number, user: string, key: string) {
    const answer = await fetch(`http://127.0.0.1:${servers[at]?.port}/orders`, {
      method: "POST",
      headers: { "x-user-id": user, "idempotency-key": key },
    });
    const { code } = (await answer.json()) as { code?: string };
    return { status: answer.status, code, replayed: answer.headers.get("idempotent-replayed") };
  }

  /** The process that holds a user's lock: one of those that were started here. */
  async function processOf(user: string): Promise<number> {
    const lock = looking();
    const found = await until(
      async () => {
        const state = await lock.inspect(user);
        return state.state === "held" && state;
      },
      { what: "an order under way" },
    );
    return Number(/:(\d+)$/.exec(found.holder ?? "")?.[1]);
  }

  test("place one order of two clicks on two servers, and repeat its answer on a third", async () => {
    const clicks = [click(0, "two", "k-1"), click(1, "two", "k-2")];
    expect((await Promise.all(clicks)).map(({ status }) => status).sort()).toEqual([201, 409]);
    const keyOfFirst = (await Promise.all(clicks))[0]?.status === 201 ? "k-1" : "k-2";
    const again = () => click(2, "two", keyOfFirst);
    // The record may be written a moment after the answer.
    await until(async () => (await again()).replayed === "true", { what: "the first answer" });
    expect(await again()).toMatchObject({ status: 201, replayed: "true" });
  });

  test("drain: one that is told to end answers its order, and others serve", async () => {
    writeFileSync(hold, "");
    const order = click(0, "drain", "k-1");
    process.kill(await processOf("drain"), "SIGTERM");
    const isDraining = async () => (await ready(servers[0]?.port ?? 0)) === 503;
    await until(isDraining, { what: "the server to drain", everyMs: 20 });
    expect(await click(1, "drain", "k-1")).toMatchObject({ code: "idempotency_in_flight" });
    rmSync(hold);
    expect(await order).toMatchObject({ status: 201 });
    await servers[0]?.ended;
    expect(await click(1, "drain", "k-1")).toMatchObject({ status: 201, replayed: "true" });
  });

  test("let a repeat run once the lock of a killed server has run out", async () => {
    writeFileSync(hold, "");
    const order = click(1, "killed", "k-1").catch(() => "lost");
    process.kill(await processOf("killed"), "SIGKILL");
    expect(await order).toBe("lost");
    rmSync(hold);
    expect(await click(2, "killed", "k-1")).toMatchObject({ code: "idempotency_in_flight" });
    const isPlaced = async () => (await click(2, "killed", "k-1")).status === 201;
    await until(isPlaced, { what: "the order", boundMs: 60_000, everyMs: 200 });
    await expect(servers[1]?.ended).rejects.toThrow("SIGKILL");
  });
});

describe("personal data", () => {
  const shown = page("docs/operations/stored-data.md");
  const beginning = `
import type { Request } from "express";
import { Redis } from "ioredis";
import { RedisStore, SubmitLock } from "submit-lock";
import { submitGuard } from "submit-lock/express";
const redis = new Redis(process.env["REDIS_URL"] ?? "");
const lock = new SubmitLock({ store: new RedisStore(redis), acquireTimeoutMs: 5_000 });
while (await lock.check().then(() => false, () => true)) {}
`;

  test("are erased: the records of one user, and no others", async () => {
    project.write(
      "erase.ts",
      `${beginning}${shown.blockUnder("Erase a user")}
for (const user of ["42", "421", "with space*"]) {
  for (const id of ["a", "b"]) await lock.once(user, { id }, () => user);
}
console.log(await erase("42"), await erase("with space*"), await erase("nobody"));
await lock.close();
redis.disconnect();`,
    );
    expect(await project.run("erase.ts", { REDIS_URL: redis.url })).toBe("2 2 0\n");
    const keys = (await command(redis.port, "keys", "{lock:submit:4*")) as string[];
    expect(keys.map((key) => key.slice(0, -22))).toEqual(Array(2).fill("{lock:submit:421}:"));
  });

  test("hash the user id: the key shows no id, and a guest stays a guest", async () => {
    project.write(
      "hashed.ts",
      `${beginning}${shown.blockUnder("Hash the user id")}
console.log(lock.keyFor(lockId("anna@example.com") ?? ""), lockId("anna@example.com") === lockId("anna@example.com"));
console.log(lockId(""), lockId(undefined), typeof guard);
await lock.close();
redis.disconnect();`,
    );
    const env = { REDIS_URL: redis.url, LOCK_SECRET: "a secret" };
    expect(await project.run("hashed.ts", env)).toMatch(
      /^lock:submit:[\w-]{43} true\n undefined function\n$/,
    );
  });

  test("in the messages of errors and in a logged lease: the key, as the page says", async () => {
    const lock = openLock({ ...patience, store: new RedisStore(ioredis6.connect(redis.port)) });
    const lease = await leaseOf(lock, "anna");
    expect(JSON.stringify(lease)).toContain("lock:submit:anna");
    const refused = await lock.withLock("anna", async () => {}).catch((error: Error) => error);
    expect(`${refused}`).toContain("lock:submit:anna");
    await lease.release();
  });
});
