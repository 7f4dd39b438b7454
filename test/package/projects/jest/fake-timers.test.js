const { MemoryStore, SubmitLock } = require("submit-lock");
const { submitGuard } = require("submit-lock/fetch");
const sinon = require("sinon");

const suites = {
  "Jest's": { fake: () => jest.useFakeTimers({ now: 0 }), end: () => jest.useRealTimers() },
  "Jest's, with every method": {
    fake: () => jest.useFakeTimers({ now: 0, doNotFake: [] }),
    end: () => jest.useRealTimers(),
  },
  sinon: {
    fake() {
      this.clock = sinon.useFakeTimers({ now: 0 });
    },
    end() {
      this.clock.restore();
    },
  },
};

describe.each(Object.keys(suites))("under fake timers: %s", (name) => {
  const suite = suites[name];
  const store = new MemoryStore();
  let lock;
  beforeEach(() => {
    suite.fake();
    lock = new SubmitLock({ store, ttlMs: 1_000, acquireTimeoutMs: 500, commandTimeoutMs: 200 });
  });
  afterEach(async () => {
    suite.end();
    await lock.close({ timeoutMs: 0 });
  });

  test("every call settles, and a lease keeps its own time", async () => {
    const { lease, outcome } = await lock.acquire("1");
    expect(outcome).toBe("acquired");
    if (suite.clock) suite.clock.tick(3_600_000);
    else jest.advanceTimersByTime(3_600_000);
    expect((await lock.acquire("1")).outcome).toBe("contended");
    expect(await lease.release()).toBe("released");
    expect(await lock.withLock("1", { waitMs: 100 }, () => 7)).toBe(7);
    expect(await lock.once("1", { id: "a" }, () => 7)).toMatchObject({ value: 7 });
    expect(await lock.once("1", { id: "a" }, () => 8)).toMatchObject({ value: 7, replayed: true });
    expect(await lock.inspect("1")).toEqual({ state: "free" });
    await lock.check();
  });

  test("a guard lets an order through", async () => {
    const placeOrder = submitGuard({ lock, userId: () => "2" }).protect(
      async () => new Response(null, { status: 201 }),
    );
    const request = new Request("http://shop.test/orders", { method: "POST" });
    expect((await placeOrder(request)).status).toBe(201);
  });
});
