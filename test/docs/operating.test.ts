import { rmSync, writeFileSync } from "node:fs";
import { join } from "node:path";
import { afterAll, beforeAll, describe, expect, test } from "vitest";
import { RedisStore } from "../../src/index.ts";
import { closeClients, ioredis6 } from "../support/clients.ts";
import { command } from "../support/command.ts";
import { freePort } from "../support/free-port.ts";
import { freshUser } from "../support/ids.ts";
import { closeLocks, leaseOf, openLock } from "../support/locks.ts";
import { type RedisServer, startRedis } from "../support/redis-server.ts";
import { until } from "../support/until.ts";
import { inQuickStart } from "./in-quick-start.ts";
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

const route = `
import { cartOf, placeOrder } from "./shop.ts";
const guard = submitGuard({ lock, userId, idempotency: {} });
app.post("/orders", guard.protect(async (req, res) => {
  res.status(201).json(await placeOrder(await cartOf(userId(req))));
}));
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
  project.write("lock.ts", page("docs/guide/any-function.md").blockUnder("One lock"));
});

afterAll(async () => {
  await closeLocks();
  closeClients();
  project.remove();
  await redis.stop();
});

describe("several servers", () => {
  const servers: { url: string; ended: Promise<string> }[] = [];
  const looking = () =>
    openLock({ ...patience, store: new RedisStore(ioredis6.connect(redis.port)) });

  beforeAll(async () => {
    const deploying = page("docs/operations/deploying.md");
    const shown =
      inQuickStart(deploying.blockUnder("A server"), "express", { after: route }) +
      deploying.blockUnder("Shutting down");
    // Patient, for a machine that is busy with other tests.
    const patient = shown
      .replace("drainMs = 0;", "drainMs = 1_000;")
      .replace("new RedisStore(redis) }", "new RedisStore(redis), acquireTimeoutMs: 5_000 }")
      .replace(
        /await lock\.check\(\).*/,
        "while (await lock.check().then(() => false, () => true)) {}",
      );
    expect(patient).toMatch(/5_000 }[\s\S]*while[\s\S]*drainMs = 1_000/);
    for (let i = 0; i < 3; i++) {
      const env = { HOLD: hold, REDIS_URL: redis.url };
      const served = await project.serve("server.ts", patient, env);
      servers.push(served);
      const isReady = async () => (await ready(served.url)) === 200;
      await until(isReady, { what: "a server", boundMs: 60_000, everyMs: 50 });
    }
  });

  const ready = (url = "") =>
    fetch(`${url}/ready`).then(
      ({ status }) => status,
      () => 0,
    );

  async function click(at: number, user: string, key: string) {
    const answer = await fetch(`${servers[at]?.url}/orders`, {
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
    writeFileSync(hold, "");
    const clicks = [click(0, "two", "k-1"), click(1, "two", "k-2")];
    // The refused one: on a busy machine it may come long after the other.
    await Promise.race(clicks);
    rmSync(hold);
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
    const isDraining = async () => (await ready(servers[0]?.url)) === 503;
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
      `${beginning}const erase = async (user: string) => {
  ${shown.blockUnder("Erase a user").replaceAll('"42"', "user")}
};
for (const user of ["42", "421", "with space*"]) {
  for (const id of ["a", "b"]) await lock.once(user, { id }, () => user);
}
for (const user of ["42", "with space*", "nobody"]) await erase(user);
await lock.close();
redis.disconnect();`,
    );
    await project.run("erase.ts", { REDIS_URL: redis.url });
    const kept = ["{lock:submit:4*", "{lock:submit:with*"].map((keys) =>
      command(redis.port, "keys", keys),
    );
    const keys = (await Promise.all(kept)).flat() as string[];
    expect(keys.map((key) => key.slice(0, -22))).toEqual(Array(2).fill("{lock:submit:421}:"));
  });

  test("hash the user id: the key shows no id, and a guest stays a guest", async () => {
    const hash = /`(user && createHmac.*?)`/.exec(shown.prose)?.[1];
    project.write(
      "hashed.ts",
      `import { createHmac } from "node:crypto";
${beginning}const secret = "a secret";
const lockId = (user?: string) => ${hash};
const guard = submitGuard({ lock, userId: (req) => lockId(req.get("x-user-id")) });
console.log(lock.keyFor(lockId("anna@example.com") ?? ""), lockId("anna@example.com") === lockId("anna@example.com"));
console.log(lockId(""), lockId(undefined), typeof guard);
await lock.close();
redis.disconnect();`,
    );
    expect(await project.run("hashed.ts", { REDIS_URL: redis.url })).toMatch(
      /^lock:submit:[\w-]{43} true\n undefined function\n$/,
    );
  });
});

/** The reader's application around the two routes. */
const application = `
import express from "express";
import { lock } from "./lock.ts";
import { supportPage } from "./page.ts";
await lock.check();
const app = express();
app.use((_req, res, next) => {
  res.locals["agent"] = "anna";
  next();
});
app.use("/support", supportPage(lock));
app.listen(Number(process.env["PORT"]), "127.0.0.1");
`;

describe("P10: the page for support", () => {
  let base: string;
  beforeAll(async () => {
    project.copy("support.ts", "page.ts");
    const { url } = await project.serve("support.ts", application, { REDIS_URL: redis.url });
    expect(await project.typeErrors()).toBe("");
    base = `${url}/support`;
  });

  async function get(user: string): Promise<Record<string, unknown>> {
    return (await (await fetch(`${base}/locks/${user}`)).json()) as Record<string, unknown>;
  }

  async function free(user: string, body: object) {
    const answer = await fetch(`${base}/locks/${user}/free`, {
      method: "POST",
      headers: { "content-type": "application/json" },
      body: JSON.stringify(body),
    });
    return { status: answer.status, text: await answer.text() };
  }

  const open = () => openLock({ store: new RedisStore(ioredis6.connect(redis.port)) });

  test("shows a lock and frees it", async () => {
    const [lock, user] = [open(), freshUser()];
    expect(await get(user)).toEqual({ state: "free" });
    const lease = await leaseOf(lock, user);
    const found = await get(user);
    expect(found).toMatchObject({ state: "held", id: lease.ownerId.slice(0, 8) });
    const freed = await free(user, { id: found["id"], reason: "ticket 4711" });
    expect(freed.status).toBe(200);
    expect(JSON.parse(freed.text)).toMatchObject({ outcome: "freed" });
    expect(await get(user)).toMatchObject({ state: "freed", by: "anna", reason: "ticket 4711" });
    expect(await lease.release()).toBe("freed");
  });

  test("says so where the lock has changed hands", async () => {
    const user = freshUser();
    await leaseOf(open(), user);
    const { status, text } = await free(user, { id: "00000000", reason: "ticket 4711" });
    expect([status, JSON.parse(text)]).toEqual([409, { outcome: "changed" }]);
    expect(await get(user)).toMatchObject({ state: "held" });
  });

  test("cures the two-hour SETNX of an old lock", async () => {
    const [lock, user] = [open(), freshUser()];
    await command(redis.port, "set", lock.keyFor(user), "1", "nx", "ex", "7200");
    const { id, state } = await get(user);
    expect(state).toBe("foreign");
    await free(user, { id, reason: "the incident" });
    await (await leaseOf(lock, user)).release();
  });

  test("shows null for a key without an end", async () => {
    const [lock, user] = [open(), freshUser()];
    await command(redis.port, "set", lock.keyFor(user), "1");
    expect(await get(user)).toMatchObject({ state: "foreign", expiresInMs: null });
  });
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

test("the code of the page on observing exports metrics to Prometheus", async () => {
  const port = await freePort();
  const code = page("docs/operations/observing.md").blockUnder("OpenTelemetry");
  project.write("observed.ts", `import { lock } from "./lock.ts";\n${code}${orders}`);
  const env = { METRICS_PORT: `${port}`, REDIS_URL: redis.url };
  // Until it is killed.
  void project.run("observed.ts", env).catch(() => {});
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

/** Below the code that is shown: a refusal, a repeat, a loss and an outage, of one user. */
const events = `
import { MemoryStore, SubmitLock } from "submit-lock";
import { submitGuard } from "submit-lock/fetch";
const store = new MemoryStore();
const lock = new SubmitLock({ store, acquireTimeoutMs: 3_000 });
const userId = (request: Request) => request.headers.get("x-user");
const POST = submitGuard({ lock, userId, idempotency: {} }).protect(async () => Response.json({}));
const click = (headers: Record<string, string>) =>
  POST(new Request("http://shop/orders", { method: "POST", headers }));
await click({});
await click({ "x-user": "anna@example.com", "idempotency-key": "k" });
await click({ "x-user": "anna@example.com", "idempotency-key": "k" });
const short = new SubmitLock({ store, ttlMs: 1_000, maxHoldMs: 1_000 });
const held = await short.acquire("anna@example.com");
while (held.outcome === "acquired" && !held.lease.signal.aborted) {
  await new Promise((resolve) => setTimeout(resolve, 20));
}
class Silent extends MemoryStore {
  override acquire(): void {}
}
await new SubmitLock({ store: new Silent() }).acquire("anna@example.com");
process.exit();
`;

test.each(["pino", "console"])(
  "the page's log with %s has each event, and no customer",
  async (log) => {
    const shown = page("docs/operations/observing.md").blockUnder("Logging");
    const code =
      log === "pino"
        ? shown
        : shown
            .replace(/^import \{ pino .*\n/m, "")
            .replace("const log = pino();", "const log = console;");
    project.write(`log-${log}.ts`, code + events);
    const printed = await project.run(`log-${log}.ts`, {});
    expect(printed).toMatch(/"?event"?: ?["']refusal["'],[^}]*submit_anonymous/);
    expect(printed).toMatch(/"?event"?: ?["']replay["']/);
    expect(printed).toMatch(/"?event"?: ?["']lost["'],[^}]*max-hold/);
    if (log === "pino") {
      expect(printed).toMatch(/"event":"store","outcome":"away",.*SUBMIT_LOCK_UNAVAILABLE/);
    }
    expect(printed).not.toContain("anna");
  },
);
