import { afterAll, afterEach, beforeAll, describe, expect, test } from "vitest";
import {
  type LockCommand,
  LockMisconfiguredError,
  type LockTimes,
  RedisStore,
  type SubmitLock,
} from "../../src/index.ts";
import { portOf } from "../../src/stores/redis/clients/port-of.ts";
import { slotOf } from "../../src/stores/redis/clients/slots.ts";
import { acquireCommand } from "../../src/stores/redis/commands/acquire.ts";
import { ConnectionPair } from "../../src/stores/redis/connection-pair.ts";
import { type Asking, asking } from "../support/asking.ts";
import { record } from "../support/channels.ts";
import {
  type AnyCluster,
  closeClients,
  clusterClients,
  ioredisClusters,
  isNodeRedis,
  untilReady,
} from "../support/clients.ts";
import { command } from "../support/command.ts";
import { freshUser } from "../support/ids.ts";
import { acquired, causeOf, closeLocks, commandOf, leaseOf, openLock } from "../support/locks.ts";
import { type RedisCluster, startCluster } from "../support/redis-cluster.ts";
import { type ServerLog, serverLog } from "../support/server-log.ts";
import { beginMove, type SlotMove, userOnFirst } from "../support/slot-move.ts";
import { answer, foundBy, hashesOf, recordKey, recordOf, submit } from "../support/submissions.ts";
import { until } from "../support/until.ts";
import { patient } from "./fixture.ts";

/** One object, as of one lock: only then do requests share a call. */
const times: LockTimes = { ...patient, maxHoldMs: 60_000 };

/** For a test that waits for a confirm. */
const impatient = { ttlMs: 10_000, acquireTimeoutMs: 5_000, commandTimeoutMs: 500 } as const;

let moves: SlotMove[] = [];
let logs: ServerLog[] = [];
const cluster = await startCluster();
afterAll(() => cluster.stop());
afterEach(async () => {
  for (const log of logs) log.stop();
  logs = [];
  // Not awaited: it would wait until every copy that a test has lost on the way is out of date.
  void closeLocks();
  closeClients();
  for (const move of moves) await move.finish();
  moves = [];
});

async function startMove(key: string): Promise<SlotMove> {
  const move = await beginMove(cluster, key);
  moves.push(move);
  return move;
}

async function startLogs(): Promise<ServerLog[]> {
  logs = await Promise.all(cluster.ports.map(serverLog));
  return logs;
}

const callsOf = (each: readonly ServerLog[]) => Promise.all(each.map((log) => log.calls()));

const lockKey = (user: string) => `lock:submit:${user}`;

/** Which of the three masters has the slot of the key. */
function nodeOf(key: string): number {
  return [5_461, 10_922].filter((first) => slotOf(key) >= first).length;
}

/** So many users of each node, by node. */
function usersOnEach(count: number): string[][] {
  const users: string[][] = cluster.ports.map(() => []);
  while (users.some((of) => of.length < count)) {
    const user = freshUser();
    const of = users[nodeOf(lockKey(user))] as string[];
    if (of.length < count) of.push(user);
  }
  return users;
}

/** So many commands of new owners for locks of each node. */
function commandsOnEach(count: number, given: () => Partial<LockCommand> = () => ({})) {
  const users = usersOnEach(count).flat();
  return users.map((user) => commandOf({ times, key: lockKey(user), ...given() }));
}

const kindsOf = async (asked: readonly { readonly reply: Promise<{ kind: string }> }[]) =>
  new Set((await Promise.all(asked.map(({ reply }) => reply))).map(({ kind }) => kind));

const pairsOf = async (lock: SubmitLock, users: readonly string[]) => {
  const leases = await Promise.all(users.map((user) => leaseOf(lock, user)));
  const released = await Promise.all(leases.map((lease) => lease.release()));
  expect(new Set(released)).toEqual(new Set(["released"]));
};

describe.each(clusterClients)("rule 23: gathering by node, with $name", ({ name, connect }) => {
  type Options = Parameters<typeof connect>[1];

  interface Bench {
    readonly client: AnyCluster;
    readonly lock: SubmitLock;
    readonly store: Asking;
  }

  async function openBench(options?: Options, on = cluster): Promise<Bench> {
    const client = await untilReady(connect(on.ports, options));
    const store = new RedisStore(client);
    return { client, lock: openLock({ store, ...patient }), store: asking(store) };
  }

  /** Each node has been asked, and has said yes. */
  async function openGathering(options?: Options, on = cluster, userOf = freshUser) {
    const bench = await openBench(options, on);
    const users = Array.from({ length: 40 }, userOf);
    // The client connects to a node with its first command for it.
    await pairsOf(bench.lock, users);
    const pair = ConnectionPair.of(portOf(bench.client));
    const isGathered = (user: string) =>
      pair.routeOf(commandOf({ times, key: bench.lock.keyFor(user) }), acquireCommand)?.gatherOn;
    await until(() => users.every(isGathered), { what: "all nodes to say yes" });
    return bench;
  }

  test("one turn's requests of all kinds share few calls to each node, and none declares a key", async () => {
    const { store } = await openGathering();
    const expiresAtMs = Date.now() + 600_000;
    const [held, extended, released, cooled] = [0, 0, 0, 0].map(() => commandsOnEach(20));
    const completed = commandsOnEach(20, () => ({ submission: hashesOf() }));
    const before = [held, extended, released, cooled, completed].flatMap((each) => each ?? []);
    expect(await kindsOf(before.map(store.acquire))).toEqual(new Set(["taken"]));
    const rivals = (held ?? []).map(({ key }) => commandOf({ key, times }));
    const fresh = commandsOnEach(20);
    const orders = commandsOnEach(20, () => ({ submission: hashesOf() }));

    const all = await startLogs();
    const turn = {
      taken: [...fresh, ...orders].map(store.acquire),
      contended: rivals.map(store.acquire),
      recorded: completed.map((one) => store.complete(one, { record: recordOf(one), expiresAtMs })),
      done: [
        ...(extended ?? []).map(store.extend),
        ...(released ?? []).map((one) => store.release(one)),
        ...(cooled ?? []).map((one) => store.release(one, Date.now() + 60_000)),
      ],
      gone: commandsOnEach(20).map(store.extend),
      foreign: rivals.map((one) => store.release(one)),
    };
    for (const [kind, asked] of Object.entries(turn)) {
      expect(await kindsOf(asked)).toEqual(new Set([kind]));
    }
    for (const calls of await callsOf(all)) {
      expect(calls.flatMap(({ keys }) => keys)).toEqual([]);
      // Of 180 requests to each node.
      expect(calls.length).toBeGreaterThan(0);
      expect(calls.length).toBeLessThanOrEqual(20);
    }

    expect(await kindsOf((released ?? []).map((each) => store.look(each)))).toEqual(
      new Set(["outOfWindow"]),
    );
    expect(await kindsOf(completed.map((each) => store.look(each)))).toEqual(
      new Set(["completed"]),
    );
    const looked = await Promise.all((cooled ?? []).map((one) => store.look(one).reply));
    expect(looked.filter((one) => "isCooldown" in one && one.isCooldown)).toHaveLength(60);
    const left = [...(held ?? []), ...(extended ?? []), ...fresh, ...orders];
    expect(await kindsOf(left.map((one) => store.release(one)))).toEqual(new Set(["done"]));
  });

  test.each(["shop:", "{shop}:"])("every key has the client's prefix %s", async (keyPrefix) => {
    const { lock } = await openGathering({ keyPrefix });
    const other = await openGathering({ keyPrefix });
    const all = await startLogs();
    const users = Array.from({ length: 60 }, freshUser);
    const leases = await Promise.all(users.map((user) => leaseOf(lock, user)));
    const rivals = await Promise.all(users.map((user) => other.lock.acquire(user)));
    expect(new Set(rivals.map(({ outcome }) => outcome))).toEqual(new Set(["contended"]));
    const plain = await untilReady(connect(cluster.ports));
    for (const { key, ownerId } of leases) {
      expect((await plain.get(keyPrefix + key))?.slice(0, 36)).toBe(ownerId);
    }
    const orders = await Promise.all(Array.from({ length: 20 }, () => submit(lock, freshUser())));
    const endings = orders.map((order) => acquired(order).lease.complete(answer));
    expect(new Set(await Promise.all(endings))).toEqual(new Set(["recorded"]));
    const endedHere = await Promise.all(leases.map((lease) => lease.release()));
    expect(new Set(endedHere)).toEqual(new Set(["released"]));
    const calls = (await callsOf(all)).flat();
    expect(calls.length).toBeGreaterThan(0);
    expect(calls.flatMap(({ keys }) => keys)).toEqual([]);
  });

  describe("a slot on the move", () => {
    /** A lock on the first master, and neighbours of other slots there. */
    function lockAndNeighbours() {
      const keyOnFirst = () => userOnFirst(cluster, (user) => `lock:submit:${user}`);
      const commands = Array.from({ length: 21 }, () =>
        commandOf({ times, key: `lock:submit:${keyOnFirst()}` }),
      );
      const [moved, ...neighbours] = commands as [LockCommand, ...LockCommand[]];
      return { moved, neighbours };
    }

    const release = async ({ store }: Bench, commands: readonly LockCommand[]) =>
      expect(await kindsOf(commands.map((one) => store.release(one)))).toEqual(new Set(["done"]));

    test("a lock that is not there is taken at the target, its neighbours in their shared calls", async () => {
      const bench = await openGathering();
      const { moved, neighbours } = lockAndNeighbours();
      const move = await startMove(moved.key);
      const [source, target] = (await startLogs()) as [ServerLog, ServerLog];
      const asked = [moved, ...neighbours].map(bench.store.acquire);
      expect(await kindsOf(asked)).toEqual(new Set(["taken"]));
      expect(await move.whereIs(moved.key)).toBe("target");
      const shared = await source.calls();
      expect(shared.length).toBeLessThanOrEqual(4);
      expect(shared.flatMap(({ keys }) => keys)).toEqual([]);
      const alone = await target.calls();
      expect(alone.map(({ keys }) => keys)).toEqual([[moved.key]]);
      // The next one goes alone at once, so the source refuses none of a shared call.
      expect((await bench.store.extend(moved).reply).kind).toBe("done");
      expect(await source.calls()).toEqual([]);
      await release(bench, [moved, ...neighbours]);
      expect(await move.whereIs(moved.key)).toBe(undefined);
    });

    test("a lock that was taken before is contended, extended and released wherever it is", async () => {
      for (const where of ["source", "target"] as const) {
        const [bench, other] = [await openGathering(), await openGathering()];
        const { moved, neighbours } = lockAndNeighbours();
        expect((await bench.store.acquire(moved).reply).kind).toBe("taken");
        const move = await startMove(moved.key);
        if (where === "target") await move.move(moved.key);
        const all = [moved, ...neighbours];
        const rival = commandOf({ key: moved.key, times });
        const rivals = [rival, ...neighbours].map(other.store.acquire);
        expect((await rivals[0]?.reply)?.kind).toBe("contended");
        expect(await kindsOf(rivals.slice(1))).toEqual(new Set(["taken"]));
        expect(await move.whereIs(moved.key)).toBe(where);
        const extended = all.map(bench.store.extend);
        expect(await kindsOf(extended)).toEqual(new Set(["done"]));
        expect((await other.store.extend(rival).reply).kind).toBe("foreign");
        expect((await other.store.release(rival).reply).kind).toBe("foreign");
        expect(await move.whereIs(moved.key)).toBe(where);
        await release(bench, all);
        expect(await move.whereIs(moved.key)).toBe(undefined);
        expect(await kindsOf(all.map(bench.store.extend))).toEqual(new Set(["gone"]));
        expect(await kindsOf(all.map((one) => other.store.release(one)))).toEqual(
          new Set(["gone"]),
        );
      }
    });

    test("what was refused is written again with its deadline, however late", async () => {
      const bench = await openGathering();
      const { moved, neighbours } = lockAndNeighbours();
      const move = await startMove(moved.key);
      const [source, target] = (await startLogs()) as [ServerLog, ServerLog];
      const [first] = cluster.nodes;
      first?.pause();
      const asked = [moved, ...neighbours].map(bench.store.acquire);
      const deadlineMs = await until(() => asked[0]?.deadlineMs, { what: "the first write" });
      await new Promise((resolve) => setTimeout(resolve, 50));
      first?.resume();
      expect(await kindsOf(asked)).toEqual(new Set(["taken"]));
      expect(asked[0]?.deadlineMs).toBe(deadlineMs);
      const calls = [...(await source.calls()), ...(await target.calls())];
      const written = calls.filter(({ args }) => args.includes(moved.ownerId));
      expect(written).toHaveLength(2);
      const deadlines = written.map(({ args }) => args[0]);
      expect(new Set(deadlines)).toEqual(new Set([`${deadlineMs}`]));
      expect(await move.whereIs(moved.key)).toBe("target");
      await release(bench, [moved, ...neighbours]);
    });

    test.each(["source", "target"] as const)(
      "an order whose lock is on the %s is completed, its neighbours in their shared calls",
      async (where) => {
        const { client, store } = await openGathering();
        const lock = openLock({ store: new RedisStore(client), ...impatient });
        const { moved, neighbours } = lockAndNeighbours();
        const users = [moved, ...neighbours].map(({ key }) => key.replace("lock:submit:", ""));
        const orders = await Promise.all(users.map((user) => submit(lock, user)));
        const leases = orders.map((order) => acquired(order).lease);
        const move = await startMove(moved.key);
        if (where === "target") await move.move(moved.key);
        const [source] = (await startLogs()) as [ServerLog];
        const endings = leases.map((lease) => lease.complete(answer));
        expect(new Set(await Promise.all(endings.slice(1)))).toEqual(new Set(["recorded"]));
        const shared = (await source.calls()).filter(({ keys }) => keys.length === 0);
        expect(shared.length).toBeGreaterThan(0);
        expect(shared.length).toBeLessThanOrEqual(4);
        expect(await endings[0]).toBe("recorded");
        expect(await move.whereIs(moved.key)).toBe(undefined);
        expect(await move.whereIs(recordKey(moved.key))).not.toBe(undefined);
        await move.finish();
        expect((await store.extend(moved).reply).kind).toBe("gone");
        for (const user of users) expect(foundBy(await submit(lock, user))).toBe("order 7");
      },
    );

    test("who runs an order for the second time lets go of a lock that has moved before its record", async () => {
      const { client } = await openGathering();
      const lock = openLock({ store: new RedisStore(client), ...impatient });
      const { moved } = lockAndNeighbours();
      const user = moved.key.replace("lock:submit:", "");
      const first = acquired(await submit(lock, user));
      expect(await client.del(moved.key)).toBe(1);
      const second = acquired(await submit(lock, user));
      expect(await first.lease.complete(answer)).toBe("late");
      const move = await startMove(moved.key);
      await move.move(moved.key);
      expect(await second.lease.complete({ status: 201, body: "order 8" })).toBe("duplicate");
      expect(await move.whereIs(moved.key)).toBe(undefined);
    });
  });

  describe("what a node refuses", () => {
    const onAll = (name: string, ...args: (string | number)[]) =>
      Promise.all(cluster.ports.map((port) => command(port, name, ...args)));

    test("a key that the Redis user may not use is a misconfiguration, and its neighbours are served", async () => {
      const [username, password] = [freshUser(), "secret"];
      const permitted = "+eval +evalsha +get +set +pttl +pexpire +del +time +info".split(" ");
      const ofCluster = "+cluster|slots +cluster|info +client|setname".split(" ");
      const rules = ["on", `>${password}`, "~lock:submit:a*", ...permitted, ...ofCluster];
      await onAll("ACL", "SETUSER", username, ...rules);
      const userOf = (letter: string) => () => `${letter}-${freshUser()}`;
      const { lock } = await openGathering(
        { redisOptions: { username, password } },
        cluster,
        userOf("a"),
      );
      const all = await startLogs();
      const [mine, others] = ["a", "b"].map((letter) =>
        Array.from({ length: 40 }, userOf(letter)),
      ) as [string[], string[]];
      const attempts = [...others, ...mine].map((user) => lock.acquire(user));
      const [refused, served] = [attempts.slice(0, 40), attempts.slice(40)];
      for (const attempt of await Promise.all(refused)) {
        expect(causeOf(attempt)).toBeInstanceOf(LockMisconfiguredError);
      }
      const leases = (await Promise.all(served)).map((attempt) => acquired(attempt).lease);
      const shared = (await callsOf(all)).flat().filter(({ keys }) => keys.length === 0);
      expect(shared.length).toBeGreaterThan(0);
      expect(shared.length).toBeLessThanOrEqual(12);
      const released = await Promise.all(leases.map((lease) => lease.release()));
      expect(new Set(released)).toEqual(new Set(["released"]));
      const plain = await untilReady(connect(cluster.ports));
      for (const user of others) expect(await plain.exists(lock.keyFor(user))).toBe(0);
    });
  });

  describe("a node that is lost while shared calls are in flight", () => {
    let lab: RedisCluster;
    beforeAll(async () => {
      // No node is found dead, so that the others go on.
      lab = await startCluster(["--cluster-node-timeout", "60000"]);
    });
    afterAll(() => lab.stop());
    afterEach(() => lab.nodes[0]?.resume());

    /** Attempts of 20 users of each node. The first node is silent, with calls of them on their way. */
    async function openInFlight(options: Options = {}) {
      const { client } = await openGathering(options, lab);
      const lock = openLock({ store: new RedisStore(client), ...impatient });
      const { lock: other } = await openBench({}, lab);
      const [lost = [], ...others] = usersOnEach(20);
      lab.nodes[0]?.pause();
      const attempts = new Map(
        [...lost, ...others.flat()].map((user) => [user, lock.acquire(user)]),
      );
      const outcomesOf = async (users: readonly string[]) =>
        (await Promise.all(users.map((user) => attempts.get(user)))).map((one) => one?.outcome);
      expect(new Set(await outcomesOf(others.flat()))).toEqual(new Set(["acquired"]));
      return { client, other, lost, attempts, outcomesOf };
    }

    // The socket of a node is only to be had from ioredis.
    test.skipIf(isNodeRedis(name)).each([
      ["with a new connection", {}],
      ["by itself", { clusterNodeRetryStrategy: () => 20 }],
    ])(
      "and comes back %s: every attempt is confirmed, and no lock has two holders",
      async (_how, options) => {
        const { client, other, lost, attempts, outcomesOf } = await openInFlight(options);
        const acquires = record("submit-lock:acquire");
        const node = client.nodes("master").find((one) => one.options.port === lab.ports[0]);
        const wasLost = new Promise((resolve) => node?.once("close", resolve));
        node?.stream.destroy();
        await wasLost;
        lab.nodes[0]?.resume();
        for (const outcome of await outcomesOf(lost)) {
          expect(["acquired", "unavailable"]).toContain(outcome);
        }
        // Rule 2: the answer to a second write by the client is no answer to the first.
        expect(acquires.filter(({ copies }) => copies > 1)).toHaveLength(20);
        for (const user of lost) {
          const attempt = await attempts.get(user);
          if (attempt?.outcome === "acquired") {
            expect((await other.acquire(user)).outcome).toBe("contended");
            expect(await attempt.lease.release()).toBe("released");
          }
          await other.withLock(user, { waitMs: 15_000 }, () => {});
        }
      },
    );

    test("and is dead: the attempts of its users are unavailable", async () => {
      const { lost, outcomesOf } = await openInFlight();
      await lab.nodes[0]?.kill();
      expect(new Set(await outcomesOf(lost))).toEqual(new Set(["unavailable"]));
    });
  });
});

/** What gathering rests on. A server that goes red here must not be used with it. */
describe("rule 23: in a slot on the move, a script that declares no key", () => {
  const script = `local reply = redis.pcall(unpack(ARGV))
return type(reply) == 'table' and reply.err and 'refused' or 'executed'`;

  /** Keys of one slot of the first master, which begins to move. */
  async function openMove(...beside: string[]) {
    const key = lockKey(userOnFirst(cluster, lockKey));
    const keys = [key, ...beside.map((each) => `{${key}}:${each}`)];
    const [source, target] = cluster.ports as [number, number];
    for (const each of keys) await command(source, "SET", each, "first", "PX", 60_000);
    return { key, keys, source, target, move: await startMove(key) };
  }

  const commands: [call: string, ...options: (string | number)[]][] = [
    ["GET"],
    ["SET", "second", "PX", 90_000, "NX"],
    ["SET", "second", "PX", 90_000, "XX"],
    ["DEL"],
    ["PTTL"],
    ["PEXPIRE", 90_000],
  ];
  /** What each command comes to on a key of its own, of those that the test gives. */
  const each = async (port: number, keys: readonly string[]) => {
    const outcomes: unknown[] = [];
    for (const [i, [name, ...options]] of commands.entries()) {
      outcomes.push(await command(port, "EVAL", script, 0, name, keys[i] ?? "", ...options));
    }
    return new Set(outcomes);
  };
  const five = ["b", "c", "d", "e", "f"];

  test("may use a key that is there, and the target none", async () => {
    const { keys, source, target, move } = await openMove(...five);
    expect(await each(target, keys)).toEqual(new Set(["refused"]));
    for (const key of keys) expect(await command(source, "GET", key)).toBe("first");
    expect(await each(source, keys)).toEqual(new Set(["executed"]));
    for (const [i, key] of keys.entries()) {
      expect(await move.whereIs(key)).toBe(commands[i]?.[0] === "DEL" ? undefined : "source");
    }
  });

  test("is refused a key that has moved", async () => {
    const { keys, source, target, move } = await openMove(...five);
    for (const key of keys) await move.move(key);
    for (const port of [source, target]) {
      expect(await each(port, keys)).toEqual(new Set(["refused"]));
    }
    for (const key of keys) expect(await move.whereIs(key)).toBe("target");
    await move.finish();
    for (const key of keys) {
      expect(await command(target, "GET", key)).toBe("first");
      const life = Number(await command(target, "PTTL", key));
      expect(life).toBeGreaterThan(0);
      expect(life).toBeLessThanOrEqual(60_000 + 2);
    }
  });

  test("is refused a key that was never there", async () => {
    const { key, source, target, move } = await openMove();
    const never = commands.map((_command, i) => `{${key}}:never-${i}`);
    for (const port of [source, target]) {
      expect(await each(port, never)).toEqual(new Set(["refused"]));
    }
    for (const one of never) expect(await move.whereIs(one)).toBe(undefined);
  });

  /** Why a gathered call declares none: it would be redirected for that key, and ASKING opens the rest. */
  test.each(ioredisClusters)(
    "is safe, and a call that declares a key would take a lock that is held, with $name",
    async ({ connect }) => {
      const { key, keys, source, move } = await openMove("beside");
      const beside = keys[1] as string;
      await move.move(key);
      const client = await untilReady(connect(cluster.ports));
      const both = "redis.call('PTTL', KEYS[1]) return redis.call('SET', ARGV[1], 'second', 'NX')";
      // The first key has moved, so the client asks the target, whose neighbour is still at the source.
      expect(await client.eval(both, 1, key, beside)).toBe("OK");
      expect(await command(source, "GET", beside)).toBe("first");
      const read = "redis.call('PTTL', KEYS[1]) return redis.call('GET', ARGV[1])";
      expect(await client.eval(read, 1, key, beside)).toBe("second");
      // One of the two has to go, or the move does not come to an end.
      await command(source, "DEL", beside);
    },
  );
});
