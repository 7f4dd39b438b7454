import { once } from "node:events";
import { setTimeout as sleep } from "node:timers/promises";
import { afterAll, afterEach, beforeAll, describe, expect, test } from "vitest";
import { RedisStore, type SubmitLock } from "../../src/index.ts";
import { record } from "../support/channels.ts";
import { closeClients, clusterClients } from "../support/clients.ts";
import { acquired, closeLocks, leaseOf, openLock } from "../support/locks.ts";
import { type RedisCluster, startCluster } from "../support/redis-cluster.ts";
import { beginMove, type SlotMove, userOnFirst } from "../support/slot-move.ts";
import { answer, foundBy, recordKey } from "../support/submissions.ts";
import { until } from "../support/until.ts";

let cluster: RedisCluster;
let moves: SlotMove[] = [];
beforeAll(async () => {
  cluster = await startCluster();
});
afterAll(() => cluster.stop());
afterEach(async () => {
  await closeLocks();
  closeClients();
  for (const move of moves) await move.finish();
  moves = [];
});

describe.each(clusterClients)("while a slot is moved, with $name", ({ connect }) => {
  async function openOne(): Promise<SubmitLock> {
    const client = connect(cluster.ports);
    await once(client as NodeJS.EventEmitter, "ready");
    // The default bounds: a second for an attempt.
    return openLock({ store: new RedisStore(client) });
  }

  /** A user of a slot that begins to move when `begin` is called. */
  async function openFixture() {
    const lock = await openOne();
    const user = userOnFirst(cluster, (one) => lock.keyFor(one));
    const key = lock.keyFor(user);
    const begin = async () => {
      const move = await beginMove(cluster, key);
      moves.push(move);
      return move;
    };
    const submit = (fingerprint?: string, by: SubmitLock = lock) =>
      by.acquire(user, { submission: { id: "cart 7", fingerprint } });
    return { lock, user, key, kept: recordKey(key), begin, submit };
  }

  test("an order is acquired, completed and replayed, and so is the next", async () => {
    const { begin, submit, lock, user } = await openFixture();
    await begin();
    const first = acquired(await submit());
    expect(first.lease.fencingToken).toBeGreaterThan(1e15);
    const from = performance.now();
    expect(await first.lease.complete(answer)).toBe("recorded");
    expect(performance.now() - from).toBeLessThan(1_000);
    expect(foundBy(await submit())).toBe("order 7");
    for (let cart = 8; cart < 11; cart++) {
      const { lease } = acquired(await lock.acquire(user, { submission: { id: `cart ${cart}` } }));
      expect(await lease.complete(answer)).toBe("recorded");
    }
  });

  test.each(["source", "target"] as const)(
    "a lock that was taken before and lies on the %s is completed",
    async (where) => {
      const { begin, submit, key, kept } = await openFixture();
      const { lease } = acquired(await submit());
      const move = await begin();
      if (where === "target") await move.move(key);
      expect(await move.whereIs(key)).toBe(where);
      expect(await submit()).toMatchObject({ outcome: "contended", sameSubmission: true });
      expect(await lease.complete(answer)).toBe("recorded");
      expect(await move.whereIs(key)).toBe(undefined);
      expect(await move.whereIs(kept)).not.toBe(undefined);
      expect(foundBy(await submit())).toBe("order 7");
    },
  );

  test.each(["source", "target"] as const)(
    "a record that was kept before and lies on the %s is found, and leaves no lock behind",
    async (where) => {
      const { begin, submit, key, kept } = await openFixture();
      await acquired(await submit()).lease.complete(answer);
      const move = await begin();
      if (where === "target") await move.move(kept);
      expect(await move.whereIs(kept)).toBe(where);
      expect(foundBy(await submit())).toBe("order 7");
      await until(async () => (await move.whereIs(key)) === undefined, {
        what: "the lock that was taken for the look to be given back",
        boundMs: 3_000,
      });
    },
  );

  test("another payload is told from the same one, in flight and completed", async () => {
    const { begin, submit } = await openFixture();
    await begin();
    const { lease } = acquired(await submit("a payload"));
    const other = await submit("another payload");
    expect(other).toMatchObject({ outcome: "mismatched", inFlight: true });
    const same = await submit("a payload");
    expect(same).toMatchObject({ outcome: "contended", sameSubmission: true });
    await lease.complete(answer);
    const later = await submit("another payload");
    expect(later).toMatchObject({ outcome: "mismatched", inFlight: false });
    expect(foundBy(await submit("a payload"))).toBe("order 7");
  });

  test("a look-up finds what is in flight and what was completed, and takes nothing", async () => {
    const { begin, submit, lock, user } = await openFixture();
    await begin();
    const { lease } = acquired(await submit());
    const lookUp = (id: string) => lock.lookUp(user, { submission: { id } });
    expect(await lookUp("cart 7")).toEqual({ outcome: "in-flight" });
    expect(await lookUp("cart 8")).toEqual({ outcome: "none" });
    await lease.complete(answer);
    expect(await lookUp("cart 7")).toMatchObject({ outcome: "completed" });
    expect(await lookUp("cart 8")).toEqual({ outcome: "none" });
    await (await leaseOf(lock, user)).release();
  });

  test("a cooldown is left, and the answer is found in it", async () => {
    const { begin, submit, lock, user } = await openFixture();
    await begin();
    const { lease } = acquired(await submit());
    expect(await lease.complete(answer, { cooldownMs: 30_000 })).toBe("recorded");
    expect(await lock.acquire(user)).toMatchObject({ outcome: "contended", isCooldown: true });
    expect(foundBy(await submit())).toBe("order 7");
  });

  test.each(["source", "target"] as const)(
    "a lock that was taken before and lies on the %s leaves its cooldown",
    async (where) => {
      for (const ending of ["release", "complete"] as const) {
        const { begin, submit, lock, user, key } = await openFixture();
        const { lease } = acquired(await submit());
        const move = await begin();
        if (where === "target") await move.move(key);
        const cooldown = { cooldownMs: 30_000 };
        const ended =
          ending === "release" ? lease.release(cooldown) : lease.complete(answer, cooldown);
        expect(["released", "recorded"]).toContain(await ended);
        expect(await move.whereIs(key)).toBe(where);
        expect(await lock.acquire(user)).toMatchObject({ outcome: "contended", isCooldown: true });
      }
    },
  );

  test("who lost the lease is late, and a second run is a duplicate", async () => {
    const { begin, submit, lock, user, key } = await openFixture();
    const duplicate = record("submit-lock:duplicate", key);
    await begin();
    const { lease } = acquired(await submit());
    expect(await connect(cluster.ports).del(key)).toBe(1);
    const second = acquired(await submit());
    expect(await lease.complete(answer)).toBe("late");
    expect(await second.lease.complete({ status: 201, body: "order 8" })).toBe("duplicate");
    expect(duplicate.messages).toHaveLength(1);
    expect(foundBy(await submit())).toBe("order 7");
    await (await leaseOf(lock, user)).release();
    duplicate.stop();
  });

  test("a move that ends between acquire and complete is not noticed", async () => {
    const { begin, submit } = await openFixture();
    const move = await begin();
    const { lease } = acquired(await submit());
    await move.finish();
    expect(await lease.complete(answer)).toBe("recorded");
    expect(foundBy(await submit())).toBe("order 7");
  });

  test("the users of other slots of the node are served, whatever waits for that one", async () => {
    const { begin, submit, lock } = await openFixture();
    await begin();
    const order = submit();
    const others: Promise<string>[] = [];
    for (let at = 0; at < 20; at++) {
      const other = userOnFirst(cluster, (one) => lock.keyFor(one));
      const attempt = lock.acquire(other, { submission: { id: "cart 7" } });
      others.push(attempt.then(({ outcome }) => outcome));
      await sleep(40);
    }
    expect(new Set(await Promise.all(others))).toEqual(new Set(["acquired"]));
    expect((await order).outcome).toBe("acquired");
  });

  test("of many clicks on two processes, with the keys on their way, one runs", async () => {
    const { begin, lock, user, key } = await openFixture();
    const other = await openOne();
    const move = await begin();
    const ids = Array.from({ length: 12 }, (_, i) => `cart ${i}`);
    let isOver = false;
    const moving = (async () => {
      const keys = [key, ...ids.map((id) => recordKey(key, id))];
      while (!isOver) for (const moved of keys) await move.move(moved);
    })();
    const runs: string[] = [];
    const click = async (by: SubmitLock, id: string): Promise<string | undefined> => {
      const attempt = await by.acquire(user, { submission: { id } });
      if (attempt.outcome !== "acquired") return foundBy(attempt);
      runs.push(id);
      return await attempt.lease.complete({ status: 201, body: id });
    };
    for (const id of ids) {
      for (let round = 0; round < 3; round++) {
        const clicks = [lock, other, lock, other].map((by) => click(by, id));
        for (const one of await Promise.all(clicks)) {
          expect(["recorded", "contended", id]).toContain(one);
        }
      }
    }
    isOver = true;
    await moving;
    expect(runs).toEqual(ids);
  });
});
