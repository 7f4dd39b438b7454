/** @jest-environment jsdom */
const { MemoryStore, SubmitLock } = require("submit-lock");

test("a lock works in jsdom, which has no setImmediate", async () => {
  expect(typeof setImmediate).toBe("undefined");
  jest.useFakeTimers();
  const lock = new SubmitLock({ store: new MemoryStore() });
  const { lease } = await lock.acquire("1");
  expect((await lock.acquire("1")).outcome).toBe("contended");
  expect(await lease.release()).toBe("released");
  await lock.close();
});
