import { afterAll, beforeAll, describe, expect, test } from "vitest";
import { command } from "../support/command.ts";
import { type RedisServer, startRedis } from "../support/redis-server.ts";
import { page } from "./page.ts";
import { ReaderProject, session, shop } from "./reader-project.ts";

const guide = page("docs/guide/any-function.md");

let project: ReaderProject;
let redis: RedisServer;

beforeAll(async () => {
  project = new ReaderProject();
  redis = await startRedis();
  project.write("shop.ts", shop);
  project.write("session.ts", session);
  // Patient, for a machine that is busy with other tests.
  const patient = "new RedisStore(redis), acquireTimeoutMs: 5_000 }";
  const shown = guide.blockUnder("One lock").replace("new RedisStore(redis) }", patient);
  expect(shown).toContain(patient);
  project.write("lock.ts", shown);
  project.write("checkout.ts", guide.blockUnder("The call"));
});

afterAll(async () => {
  project.remove();
  await redis.stop();
});

/** Runs code beside the block under a heading, and returns the lines that it has printed. */
async function run(heading: string, code: string): Promise<unknown[]> {
  const file = heading.replace(/\W+/g, "-");
  if (heading !== "The call") project.write(`${file}-recipe.ts`, guide.blockUnder(heading));
  const recipe = heading === "The call" ? "checkout" : `${file}-recipe`;
  project.write(
    `${file}.ts`,
    `import * as recipe from "./${recipe}.ts";
import { lock, redis } from "./lock.ts";
const cart = { id: "cart-7", version: 1 };
const other = { ...cart, version: 2 };
const tell = (value: unknown) => console.log(JSON.stringify(value));
const codeOf = (error: any) => error.code;
${code}
await lock.close();
redis.disconnect();
`,
  );
  const output = await project.run(`${file}.ts`, { REDIS_URL: redis.url });
  return output
    .trim()
    .split("\n")
    .map((line) => JSON.parse(line));
}

describe("once for any function", () => {
  test("the call: two clicks at once and a late one are one order", async () => {
    const calls = `
const call = (id: string, of = cart) => recipe.checkout("call", id, of);
const clicks = await Promise.all([call("a"), call("a")]);
tell(clicks.map(({ value, replayed }) => [value.number, replayed]).sort());
const late = await call("a");
tell([late.value.number, late.replayed, late.ageMs >= 0]);
tell(await call("a", other).catch(codeOf));
tell((await call("b", other)).value.number);`;
    const mismatched = "SUBMIT_LOCK_MISMATCHED";
    const clicks = [
      [1, false],
      [1, true],
    ];
    expect(await run("The call", calls)).toEqual([clicks, [1, true, true], mismatched, 2]);
  });

  test("a look at a submission runs nothing", async () => {
    const calls = `
const again = "unknown";
const asks = async (id = "a") => {
  // A busy machine may be told so.
  for (;;) {
    const told = await recipe.orderOf("asks", id);
    if (told !== again) return told;
    await new Promise((resolve) => setTimeout(resolve, 50));
  }
};
await lock.check();
tell(await asks());
await lock.withLock("asks", async () => tell(await asks()));
const { value } = await lock.once("asks", { id: "checkout:a" }, async () => {
  tell(await asks());
  return { number: 1, cart: cart.id };
});
tell([value, await asks()]);
await lock.once("asks", { id: "checkout:b" }, () => 1n as unknown).catch(() => {});
tell(await asks("b"));
redis.disconnect();
tell(await recipe.orderOf("asks", "a"));`;
    const order = { number: 1, cart: "cart-7" };
    expect(await run("Ask without running", calls)).toEqual([
      "none",
      "none",
      "in-flight",
      [order, order],
      "placed",
      "unknown",
    ]);
  });

  test("a server action: the second click is told the same order", async () => {
    const calls = `
const form = new FormData();
form.set("cart", cart.id);
form.set("version", "1");
form.set("submission", "t-1");
const click = () => recipe.placeOrderAction("", form);
tell(await recipe.placeOrderAction("", new FormData()));
tell(await Promise.all([click(), click()]));
await lock.withLock("next", async () => {
  form.set("submission", "t-2");
  tell(await click());
});
form.set("submission", "t-1");
form.set("cart", "another");
tell(await click());`;
    const placed = "Order 1 is placed.";
    const busy = "You already have an order in progress.";
    expect(await run("A Next server action", calls)).toEqual([
      "Reload the page.",
      [placed, placed],
      busy,
      expect.stringContaining("sent before with other content"),
    ]);
  });

  test("a payment: its doors make one order, and a call behind one that failed runs", async () => {
    const shown = guide.blockUnder("A payment's return page and webhooks").replace(";", "");
    expect(shown).toContain("await lock.once");
    const calls = `
const comes = async (payment: { id: string }, work: () => Promise<void>) =>
  !(${shown}).replayed;
const handled: string[] = [];
const send = (id: string, fails = false) =>
  comes({ id }, async () => {
    if (fails) throw new Error("out of order");
    handled.push(id);
  });
tell((await Promise.all([send("e-1"), send("e-1"), send("e-2")])).sort());
tell(await send("e-1"));
tell(await send("e-3", true).catch((error) => error.message));
tell(await send("e-3"));
tell(handled.sort());`;
    expect(await run("The call", calls)).toEqual([
      [false, true, true],
      false,
      "out of order",
      true,
      ["e-1", "e-2", "e-3"],
    ]);
  });

  test("keeps an order for each user, in Redis", async () => {
    const keys = (await command(redis.port, "keys", "{lock:submit:*}:*")) as string[];
    expect(keys.length).toBeGreaterThanOrEqual(3);
  });
});
