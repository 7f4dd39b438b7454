import { createHash } from "node:crypto";
import { EventEmitter } from "node:events";
import { setTimeout as sleep } from "node:timers/promises";
import fc from "fast-check";
import { expect, test } from "vitest";
import { type IoredisClient, IoredisPort } from "../../src/stores/redis/clients/ioredis.ts";
import { Connection } from "../../src/stores/redis/connection.ts";
import { ConnectionPair, RedisClock } from "../../src/stores/redis/connection-pair.ts";
import { until } from "../support/until.ts";

/** A client whose every call is answered, or given up, by the test. */
class HeldClient extends EventEmitter implements IoredisClient {
  status = "ready";
  readonly calls: { script: string; answer(value: unknown): void; giveUp(error: Error): void }[] =
    [];

  eval(script: string): Promise<unknown> {
    return new Promise((answer, giveUp) => {
      this.calls.push({ script, answer, giveUp });
    });
  }

  evalsha(digest: string): Promise<unknown> {
    return this.eval(`by ${digest}`);
  }

  connect(): Promise<void> {
    return Promise.resolve();
  }

  disconnect(): void {}
  duplicate(): void {}
}

const unheard = { ready() {}, failed() {} };

async function silentConnection(members: { isCluster?: true } = {}) {
  const client = Object.assign(new HeldClient(), members);
  const connection = new Connection(new IoredisPort(client));
  connection.watch(unheard);
  const told: string[] = [];
  connection.send("", "a call", { keys: ["key"], args: [] }, ({ kind }) => told.push(kind));
  await sleep(2);
  expect(connection.isUsable(0, 1)).toBe(false);
  return { client, connection, told };
}

test("to ask whether a connection is usable changes nothing", async () => {
  const { client, connection } = await silentConnection();
  client.calls[0]?.giveUp(new Error("Command timed out"));
  await sleep(0);
  for (let i = 0; i < 3; i++) expect(connection.isUsable(0, 1)).toBe(false);
  expect(client.calls).toHaveLength(1);
  expect(connection.silentAt).toBe(Number.NEGATIVE_INFINITY);
});

test("a suspected connection is probed once all that its client waits for was given up, one probe at a time", async () => {
  const { client, connection } = await silentConnection();
  const before = performance.now();
  connection.suspect(0, "key", 1);
  expect(connection.silentAt).toBeGreaterThanOrEqual(before);
  // The call itself may still be answered.
  expect(client.calls).toHaveLength(1);
  client.calls[0]?.giveUp(new Error("Command timed out"));
  await sleep(0);
  connection.suspect(0, "key", 1);
  connection.suspect(0, "key", 1);
  expect(client.calls.map(({ script }) => script)).toEqual(["a call", "return 1"]);
  client.calls[1]?.answer(1);
  await sleep(0);
  expect(connection.isUsable(0, 1)).toBe(true);
  expect(connection.inFlight).toBe(0);
});

test("rules 2 and 9: a call that a Cluster repeats is not silence, and is closed with its connection", async () => {
  const { client, connection, told } = await silentConnection({ isCluster: true });
  // ioredis repeats a call, and its promise waits, while the node answers TRYAGAIN.
  for (let i = 0; i < 3; i++) connection.suspect(0, "key", 1);
  expect(client.calls.map(({ script }) => script)).toEqual(["a call", "return 1"]);
  client.calls[1]?.answer(1);
  await sleep(0);
  expect([connection.isUsable(0, 1), connection.inFlight, told]).toEqual([true, 0, []]);
  client.emit("-node");
  client.calls[0]?.answer(1);
  await sleep(0);
  expect(told).toEqual(["closed"]);
});

test("a connection that is not ready is not probed", async () => {
  const { client, connection } = await silentConnection();
  client.calls[0]?.giveUp(new Error("Command timed out"));
  await sleep(0);
  client.status = "reconnecting";
  connection.suspect(0, "key", 1);
  expect(client.calls).toHaveLength(1);
  expect(connection.silentAt).toBe(Number.NEGATIVE_INFINITY);
});

const byDigest = `by ${createHash("sha1").update("a call").digest("hex")}`;

function replyError(message: string): Error {
  return Object.assign(new Error(message), { name: "ReplyError" });
}

/** A connection whose node has executed "a call", and what the calls after that were told. */
async function loadedConnection(members: object = {}) {
  const client = Object.assign(new HeldClient(), members);
  const connection = new Connection(new IoredisPort(client));
  connection.watch(unheard);
  const told: string[] = [];
  const send = (node = "") =>
    connection.send(node, "a call", { keys: ["key"], args: [] }, (r) => told.push(r.kind));
  const sent = () => client.calls.map(({ script }) => script);
  const last = () => client.calls.at(-1);
  send();
  client.calls[0]?.answer(1);
  await sleep(0);
  expect(told.splice(0)).toEqual(["value"]);
  return { client, connection, told, send, sent, last };
}

test.each([
  "NOPERM this user has no permissions to run the 'evalsha' command or its subcommand",
  "NOPERM User checkout has no permissions to run the 'evalsha' command",
  "ERR unknown command 'evalsha', with args beginning with: ",
])("no script goes by its digest after: %s", async (message) => {
  const { client, told, send, sent, last } = await loadedConnection();
  send();
  last()?.giveUp(replyError(message));
  await sleep(0);
  expect(told).toEqual(["not-loaded"]);
  send();
  last()?.answer(1);
  await sleep(0);
  send();
  expect(sent()).toEqual(["a call", byDigest, "a call", "a call"]);
  // The next connection may be another user's.
  client.emit("ready");
  send();
  last()?.answer(1);
  await sleep(0);
  send();
  expect(sent().slice(4)).toEqual(["a call", byDigest]);
});

test.each([
  [
    "an error of the server's",
    replyError("OOM command not allowed when used memory > 'maxmemory'."),
  ],
  [
    "a permission that the script lacks",
    replyError("NOPERM no permissions to run the 'set' command"),
  ],
  ["a client's error that reads like it", new Error("NOSCRIPT No matching script.")],
])("%s is the answer to a digest as to a text", async (_what, error) => {
  const { told, send, sent, last } = await loadedConnection();
  send();
  last()?.giveUp(error);
  await sleep(0);
  expect(told).toEqual(["error"]);
  send();
  expect(sent().at(-1)).toBe(byDigest);
});

test("a client without EVALSHA is called by the text", async () => {
  const { send, sent } = await loadedConnection({ evalsha: undefined });
  send();
  expect(sent()).toEqual(["a call", "a call"]);
});

/** A client that was ready and is lost, and whose duplicates stay in one state for ever. */
class LostClient extends EventEmitter implements IoredisClient {
  status = "ready";
  readonly duplicates: EventEmitter[] = [];
  readonly #stateOfDuplicates: string;

  constructor(stateOfDuplicates: string) {
    super();
    this.#stateOfDuplicates = stateOfDuplicates;
  }

  duplicate(): unknown {
    const status = this.#stateOfDuplicates;
    const client = Object.assign(new EventEmitter(), { status, disconnect: () => {} });
    this.duplicates.push(client);
    return client;
  }

  eval(): Promise<unknown> {
    return new Promise(() => {});
  }

  connect(): Promise<void> {
    return Promise.resolve();
  }

  disconnect(): void {}
}

function lost(stateOfDuplicates: string) {
  const client = new LostClient(stateOfDuplicates);
  const pair = ConnectionPair.of(new IoredisPort(client));
  const detach = pair.attach(() => {});
  client.status = "reconnecting";
  const pick = (commandTimeoutMs: number) => pair.pick(0, "key", commandTimeoutMs);
  return { client, pick, detach };
}

test("a second connection whose handshake is not answered is replaced", async () => {
  const { client, pick, detach } = lost("connect");
  const isReplaced = () => {
    pick(200);
    return client.duplicates.length > 1;
  };
  await until(isReplaced, { what: "another duplicate" });
  detach();
});

test.each([
  ["that still looks for a server", "connecting", 200],
  ["whose lock has patience", "connect", 10_000],
])("a second connection %s is left its time", async (_name, state, commandTimeoutMs) => {
  const { client, pick, detach } = lost(state);
  const end = performance.now() + 2_500;
  while (performance.now() < end) {
    pick(commandTimeoutMs);
    await sleep(50);
  }
  expect(client.duplicates).toHaveLength(1);
  detach();
});

/** A reply of a Redis whose clock is ahead of ours by `ahead`, after `out` and `back` milliseconds on the way. */
function reply(clock: RedisClock, ahead: number, out: number, back: number): void {
  const readAt = performance.now();
  const executedAt = readAt - back;
  clock.learn("", Math.floor(executedAt + ahead), 0, executedAt - out, readAt);
}
const errorOf = (clock: RedisClock, ahead: number) => clock.now("") - (performance.now() + ahead);
const wallClock = Date.now() - performance.now();

test("the clock's estimate starts at the wall clock of this process", () => {
  expect(Math.abs(errorOf(new RedisClock(), wallClock))).toBeLessThan(50);
});

test("one quick reply puts a wrong estimate right, whichever way it was wrong", () => {
  for (const hours of [-1, 1]) {
    const clock = new RedisClock();
    const ahead = wallClock + hours * 3_600_000;
    reply(clock, ahead, 1, 1);
    expect(Math.abs(errorOf(clock, ahead))).toBeLessThan(50);
  }
});

test("a late reply, whose bounds are wide, does not spoil an estimate that is within them", () => {
  const clock = new RedisClock();
  reply(clock, wallClock + 5_000, 0, 0);
  const before = errorOf(clock, wallClock + 5_000);
  reply(clock, wallClock + 5_000, 10_000, 10_000);
  expect(Math.abs(errorOf(clock, wallClock + 5_000) - before)).toBeLessThanOrEqual(2);
});

test("the clock's estimate lies within the bounds of the last reply, whatever came before", () => {
  const ms = fc.integer({ min: 0, max: 10_000 });
  const replies = fc.array(fc.tuple(fc.integer({ min: -1e9, max: 1e9 }), ms, ms), { minLength: 1 });
  fc.assert(
    fc.property(replies, (all) => {
      const clock = new RedisClock();
      for (const [ahead, out, back] of all) reply(clock, ahead, out, back);
      const [ahead, out, back] = all.at(-1) as [number, number, number];
      // 50 ms, because the test itself may be held up between the two readings of the clock.
      const error = errorOf(clock, ahead);
      expect(error).toBeGreaterThanOrEqual(-back - 50);
      expect(error).toBeLessThanOrEqual(out + 50);
    }),
  );
});

test("the time is a whole number, as the script compares whole numbers", () => {
  expect(Number.isSafeInteger(new RedisClock().now(""))).toBe(true);
});
