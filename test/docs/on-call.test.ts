import { afterAll, afterEach, beforeAll, describe, expect, test } from "vitest";
import { RedisStore, type SubmitLock } from "../../src/index.ts";
import { closeClients, ioredis6 } from "../support/clients.ts";
import { command } from "../support/command.ts";
import { freePort } from "../support/free-port.ts";
import { freshUser } from "../support/ids.ts";
import { closeLocks, leaseOf, openLock } from "../support/locks.ts";
import { type RedisServer, startRedis } from "../support/redis-server.ts";
import { until } from "../support/until.ts";
import { page } from "./page.ts";
import { ReaderProject } from "./reader-project.ts";

const onCall = page("docs/operations/on-call.md");

/** What stands above the two routes in the reader's application, and below them. */
const above = `
import { Redis } from "ioredis";
import { RedisStore, SubmitLock } from "submit-lock";
const lock = new SubmitLock({ store: new RedisStore(new Redis(process.env["REDIS_URL"]!)) });
await lock.check();
const app = express();
app.use((_req, res, next) => {
  res.locals["agent"] = "anna";
  next();
});
`;
const below = `
app.listen(Number(process.env["PORT"]), "127.0.0.1");
`;

let project: ReaderProject;
let redis: RedisServer;
let base: string;

beforeAll(async () => {
  project = new ReaderProject();
  redis = await startRedis();
  const port = await freePort();
  base = `http://127.0.0.1:${port}/support`;
  project.write("support.ts", above + onCall.blockUnder("A page for support") + below);
  expect(await project.typeErrors()).toBe("");
  await project.start("support.ts", { PORT: `${port}`, REDIS_URL: redis.url });
  const isUp = () =>
    get("nobody").then(
      () => true,
      () => false,
    );
  await until(isUp, { what: "the page for support" });
});

afterEach(async () => {
  await closeLocks();
  closeClients();
});

afterAll(async () => {
  project.remove();
  await redis.stop();
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

const open = (options = {}): SubmitLock =>
  openLock({ store: new RedisStore(ioredis6.connect(redis.port, options)) });

describe("P10: the page for support", () => {
  test("has at most 15 lines of code", () => {
    const lines = onCall.blockUnder("A page for support").split("\n");
    expect(lines.filter((line) => line.trim() !== "").length).toBeLessThanOrEqual(15);
  });

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

test("the permissions of the documents are enough to look and to free", async () => {
  const [, rules = ""] =
    /^ACL SETUSER checkout (on >password ~lock:submit:\* .*)$/m.exec(
      page("docs/operations/redis.md").text.replace(" ~{lock:submit:*", ""),
    ) ?? [];
  await command(redis.port, "acl", "setuser", "checkout", "reset", ...rules.split(" "));
  const lock = open({ username: "checkout", password: "password" });
  const user = freshUser();
  const lease = await leaseOf(lock, user);
  const id = lease.ownerId.slice(0, 8);
  const why = { by: "anna", reason: "ticket 4711" };
  expect(await lock.inspect(user)).toMatchObject({ state: "held", id });
  expect(await lock.free(user, { id, ...why })).toMatchObject({ outcome: "freed" });
  expect(await lock.inspect(user)).toMatchObject({ state: "freed", id });
  expect(await lock.free(user, { id, ...why, now: true })).toMatchObject({ freeInMs: 0 });
  const entries = (await command(redis.port, "acl", "log")) as unknown[];
  // A server of today refuses `CLIENT SETINFO`, and nobody minds.
  expect(entries.filter((each) => !JSON.stringify(each).includes("client|setinfo"))).toEqual([]);
});
