import { EventEmitter } from "node:events";
import { setTimeout as sleep } from "node:timers/promises";
import { expect, test } from "vitest";
import { Connection } from "../../src/stores/redis/connection.ts";
import type { RedisClient } from "../../src/stores/redis/ioredis.ts";

/** A client whose every call is answered, or given up, by the test. */
class HeldClient extends EventEmitter implements RedisClient {
  status = "ready";
  readonly calls: { script: string; answer(value: unknown): void; giveUp(error: Error): void }[] =
    [];

  eval(script: string): Promise<unknown> {
    return new Promise((answer, giveUp) => {
      this.calls.push({ script, answer, giveUp });
    });
  }

  connect(): Promise<void> {
    return Promise.resolve();
  }

  disconnect(): void {}
  duplicate(): void {}
}

async function silentConnection(): Promise<{ client: HeldClient; connection: Connection }> {
  const client = new HeldClient();
  const connection = new Connection(client);
  connection.watch(() => {});
  connection.send("a call", ["key"], [], () => {});
  await sleep(2);
  expect(connection.isUsable("key", 1)).toBe(false);
  return { client, connection };
}

test("to ask whether a connection is usable changes nothing", async () => {
  const { client, connection } = await silentConnection();
  client.calls[0]?.giveUp(new Error("Command timed out"));
  await sleep(0);
  for (let i = 0; i < 3; i++) expect(connection.isUsable("key", 1)).toBe(false);
  expect(client.calls).toHaveLength(1);
  expect(connection.silentAt).toBe(Number.NEGATIVE_INFINITY);
});

test("a suspected connection is probed once all that its client waits for was given up, one probe at a time", async () => {
  const { client, connection } = await silentConnection();
  const before = performance.now();
  connection.suspect("key");
  expect(connection.silentAt).toBeGreaterThanOrEqual(before);
  // The call itself may still be answered.
  expect(client.calls).toHaveLength(1);
  client.calls[0]?.giveUp(new Error("Command timed out"));
  await sleep(0);
  connection.suspect("key");
  connection.suspect("key");
  expect(client.calls.map(({ script }) => script)).toEqual(["a call", "return 1"]);
  client.calls[1]?.answer(1);
  await sleep(0);
  expect(connection.isUsable("key", 1)).toBe(true);
  expect(connection.inFlight).toBe(0);
});

test("a connection that is not ready is not probed", async () => {
  const { client, connection } = await silentConnection();
  client.calls[0]?.giveUp(new Error("Command timed out"));
  await sleep(0);
  client.status = "reconnecting";
  connection.suspect("key");
  expect(client.calls).toHaveLength(1);
  expect(connection.silentAt).toBe(Number.NEGATIVE_INFINITY);
});

test("the end of the watch counts as closed what is in flight, and leaves no listener", async () => {
  const client = new HeldClient();
  const connection = new Connection(client);
  connection.watch(() => {});
  const told: string[] = [];
  connection.send("a call", ["key"], [], ({ kind }) => told.push(kind));
  connection.unwatch();
  client.calls[0]?.answer(1);
  await sleep(0);
  expect(told).toEqual(["closed"]);
  expect(client.eventNames()).toEqual([]);
});
