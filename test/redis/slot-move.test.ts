import { setTimeout as sleep } from "node:timers/promises";
import { afterAll, afterEach, describe, expect, test } from "vitest";
import { RedisStore, type SubmitLock } from "../../src/index.ts";
import { slotOf } from "../../src/stores/redis/clients/slots.ts";
import { expectFailure, runMain } from "../support/cli.ts";
import { closeClients, clusterClients, ioredis6, untilReady } from "../support/clients.ts";
import { acquired, closeLocks, leaseOf, openLock } from "../support/locks.ts";
import { startCluster } from "../support/redis-cluster.ts";
import { beginMove, type SlotMove, userOnFirst } from "../support/slot-move.ts";
import { answer, foundBy, recordKey } from "../support/submissions.ts";
import { until } from "../support/until.ts";

let moves: SlotMove[] = [];
const cluster = await startCluster();
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
    await untilReady(client);
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

  /** Rule 16: two absent keys of a slot that is moving are refused with TRYAGAIN: nothing is executed. */
  test("a fresh order is unavailable, leaves nothing, and runs once the slot has moved", async () => {
    const { begin, submit, key, kept } = await openFixture();
    const move = await begin();
    expect(await submit()).toMatchObject({ outcome: "unavailable" });
    expect(await move.whereIs(key)).toBe(undefined);
    expect(await move.whereIs(kept)).toBe(undefined);
    await move.finish();
    // The client repeats what was refused until the slot has moved, so the attempt that was given up
    // may have taken the lock by then: it is retired at once (rule 6), and contends until it is.
    const attempt = await until(
      async () => {
        const one = await submit();
        return one.outcome === "acquired" && one;
      },
      { what: "the attempt that was given up to be retired" },
    );
    const { lease } = acquired(attempt);
    expect(await lease.complete(answer)).toBe("recorded");
    expect(foundBy(await submit())).toBe("order 7");
  });

  test.each(["source", "target"] as const)(
    "a record that was kept before and lies on the %s is found once the slot has moved",
    async (where) => {
      const { begin, submit, key, kept } = await openFixture();
      await acquired(await submit()).lease.complete(answer);
      const move = await begin();
      if (where === "target") await move.move(kept);
      expect(await move.whereIs(kept)).toBe(where);
      expect(["unavailable", "order 7"]).toContain(foundBy(await submit()));
      expect(await move.whereIs(key)).toBe(undefined);
      await move.finish();
      await until(async () => foundBy(await submit()) === "order 7", { what: "the record" });
    },
  );

  test("a look-up does not call a submission absent that it cannot see", async () => {
    const { begin, submit, lock, user } = await openFixture();
    const { lease } = acquired(await submit());
    const move = await begin();
    const lookUp = (id: string) => lock.lookUp(user, { submission: { id } });
    expect(["unknown", "in-flight"]).toContain((await lookUp("cart 7")).outcome);
    await lease.complete(answer);
    expect(["unknown", "completed"]).toContain((await lookUp("cart 7")).outcome);
    await move.finish();
    await until(async () => (await lookUp("cart 7")).outcome === "completed", {
      what: "the record to be found",
    });
    expect(await lookUp("cart 8")).toEqual({ outcome: "none" });
    await (await leaseOf(lock, user)).release();
  });

  test.each(["source", "target"] as const)(
    "a record that lies on the %s is not said to be missing at the shell",
    async (where) => {
      const { begin, submit, user, kept } = await openFixture();
      await acquired(await submit()).lease.complete(answer);
      const move = await begin();
      if (where === "target") await move.move(kept);
      const words = [
        "answers",
        user,
        "--cluster",
        "--url",
        `redis://127.0.0.1:${cluster.ports[0]}`,
      ];
      expectFailure(await runMain(words), 3, "redis-cli --cluster fix");
      expectFailure(await runMain(["show", ...words.slice(1)]), 3, "move the slot of these keys");
      await move.finish();
      expect((await runMain(words)).stdout).toContain("has 1 kept answer ");
    },
  );

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

  test("of many clicks on two processes, with the keys on their way, one runs", async () => {
    const { begin, lock, user, key } = await openFixture();
    const other = await openOne();
    const move = await begin();
    const ids = Array.from({ length: 2 }, (_, i) => `cart ${i}`);
    let isOver = false;
    const moving = (async () => {
      const keys = [key, ...ids.map((id) => recordKey(key, id))];
      for (let at = 0; !isOver; at++) {
        await move.move(keys[at % keys.length] as string);
        await sleep(2);
      }
    })();
    const runs: string[] = [];
    const click = async (by: SubmitLock, id: string): Promise<string | undefined> => {
      const attempt = await by.acquire(user, { submission: { id } });
      if (attempt.outcome !== "acquired") return foundBy(attempt);
      runs.push(id);
      return await attempt.lease.complete({ status: 201, body: id });
    };
    for (const id of ids) {
      for (let round = 0; round < 2; round++) {
        const clicks = [lock, other, lock, other].map((by) => click(by, id));
        for (const one of await Promise.all(clicks)) {
          expect(["recorded", "contended", "unavailable", id]).toContain(one);
        }
      }
    }
    isOver = true;
    await moving;
    await move.finish();
    for (const id of ids) {
      await until(async () => ["recorded", id].includes((await click(lock, id)) ?? ""), {
        what: `${id} to be answered`,
      });
    }
    expect(runs.toSorted()).toEqual(ids.toSorted());
  });
});

test("the slot of a key is the one that Redis computes", async () => {
  const node = ioredis6.connect(cluster.ports[0] as number);
  const odd = ["", "{tag}lock:submit:42", "app:{tag}:lock:submit:42", "{}lock", "}{"];
  const users = Array.from({ length: 100 }, (_, i) => `lock:submit:user-${i * 7919}`);
  for (const key of [...odd, "a}b{c}d{e}", "{unclosed", "schlüssel:€", ...users]) {
    expect([key, slotOf(key)]).toEqual([key, await node.call("CLUSTER", "KEYSLOT", key)]);
  }
});
