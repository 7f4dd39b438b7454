import { afterEach, expect, test } from "vitest";
import { type LockCommand, MemoryStore } from "../../src/index.ts";
import { asking } from "../support/asking.ts";
import { runChild, sourceUrl } from "../support/child.ts";
import { closeLocks, commandOf, roomyTimes } from "../support/locks.ts";
import { onceOf, recordOf } from "../support/submissions.ts";

afterEach(closeLocks);

const code = `
  const { MemoryStore } = await import(${JSON.stringify(sourceUrl("index.ts"))});
  process.on("warning", ({ code, message }) => console.log(JSON.stringify({ code, message })));
  new MemoryStore();
  new MemoryStore();`;

test("in production it warns, once, with a code", async () => {
  const { code: exit, stdout } = await runChild(code, { NODE_ENV: "production" });
  expect(exit).toBe(0);
  const warnings = stdout
    .trim()
    .split("\n")
    .map((line) => JSON.parse(line));
  expect(warnings).toEqual([
    { code: "SUBMIT_LOCK_MEMORY_STORE", message: expect.stringContaining("one process only") },
  ]);
});

test.each(["development", "test", ""])("with NODE_ENV %j it does not warn", async (env) => {
  expect(await runChild(code, { NODE_ENV: env })).toMatchObject({ code: 0, stdout: "" });
});

test("it takes no options, and says so", () => {
  const options = { ttlMs: 1 } as Record<never, never>;
  expect(() => new MemoryStore(options)).toThrow(
    expect.objectContaining({ code: "SUBMIT_LOCK_INVALID_OPTION" }),
  );
});

test("two stores know nothing of each other", async () => {
  const { key } = commandOf();
  for (const store of [new MemoryStore(), new MemoryStore()].map(asking)) {
    expect(await store.acquire(commandOf({ key })).reply).toMatchObject({ kind: "taken" });
  }
});

test("the answers of the latest 10 000 submissions are kept, and no older ones", async () => {
  const store = asking(new MemoryStore());
  const done = Array.from({ length: 10_002 }, () => onceOf());
  const expiresAtMs = Date.now() + 60_000;
  for (const mine of done) store.complete(mine, { record: recordOf(mine), expiresAtMs });
  const looks = [0, 1, 2, 10_001].map((at) => store.look(done[at] as LockCommand).reply);
  expect((await Promise.all(looks)).map(({ kind }) => kind)).toEqual([
    "outOfWindow",
    "outOfWindow",
    "completed",
    "completed",
  ]);
});

test("a sweep of many users keeps every lock that is alive", async () => {
  const store = asking(new MemoryStore());
  const alive = commandOf({ times: { ...roomyTimes, ttlMs: 60_000 } });
  await store.acquire(alive).reply;
  const times = { ...roomyTimes, ttlMs: 1 };
  for (let i = 0; i < 5_000; i++) store.acquire(commandOf({ key: `user-${i}`, times }));
  expect(await store.acquire(commandOf({ key: alive.key })).reply).toMatchObject({
    kind: "contended",
  });
  expect(await store.extend(alive).reply).toMatchObject({ kind: "done" });
});

test("it executes in the order of the calls", async () => {
  const [store, mine] = [asking(new MemoryStore()), commandOf()];
  await store.acquire(mine).reply;
  const next = store.acquire(commandOf({ key: mine.key }));
  const release = store.release(mine);
  expect([(await next.reply).kind, (await release.reply).kind]).toEqual(["contended", "done"]);
});
