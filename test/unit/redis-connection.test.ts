import { createHash } from "node:crypto";
import { EventEmitter } from "node:events";
import { setTimeout as sleep } from "node:timers/promises";
import { expect, test } from "vitest";
import { type IoredisClient, IoredisPort } from "../../src/stores/redis/clients/ioredis.ts";
import { Connection } from "../../src/stores/redis/connection.ts";

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

const unheard = { ready() {}, refused() {} };

async function silentConnection(): Promise<{ client: HeldClient; connection: Connection }> {
  const client = new HeldClient();
  const connection = new Connection(new IoredisPort(client));
  connection.watch(unheard);
  connection.send("", "a call", ["key"], [], () => {});
  await sleep(2);
  expect(connection.isUsable(0, 1)).toBe(false);
  return { client, connection };
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

test("a connection that is not ready is not probed", async () => {
  const { client, connection } = await silentConnection();
  client.calls[0]?.giveUp(new Error("Command timed out"));
  await sleep(0);
  client.status = "reconnecting";
  connection.suspect(0, "key", 1);
  expect(client.calls).toHaveLength(1);
  expect(connection.silentAt).toBe(Number.NEGATIVE_INFINITY);
});

test("the end of the watch counts as closed what is in flight, and leaves no listener", async () => {
  const client = new HeldClient();
  const connection = new Connection(new IoredisPort(client));
  connection.watch(unheard);
  const told: string[] = [];
  connection.send("", "a call", ["key"], [], ({ kind }) => told.push(kind));
  connection.unwatch();
  client.calls[0]?.answer(1);
  await sleep(0);
  expect(told).toEqual(["closed"]);
  expect(client.eventNames()).toEqual([]);
});

/** SHA-1 of "a call". */
const byDigest = `by ${createHash("sha1").update("a call").digest("hex")}`;

function replyError(message: string): Error {
  return Object.assign(new Error(message), { name: "ReplyError" });
}

/** A connection whose node has executed "a call", and what the calls after that were told. */
async function loadedConnection() {
  const client = new HeldClient();
  const connection = new Connection(new IoredisPort(client));
  connection.watch(unheard);
  const told: string[] = [];
  const send = (node = "") =>
    connection.send(node, "a call", ["key"], [], (r) => told.push(r.kind));
  const sent = () => client.calls.map(({ script }) => script);
  const last = () => client.calls.at(-1);
  send();
  client.calls[0]?.answer(1);
  await sleep(0);
  expect(told.splice(0)).toEqual(["value"]);
  return { client, connection, told, send, sent, last };
}

test("a script goes by its digest to a node that has executed it, and to no other", async () => {
  const { send, sent } = await loadedConnection();
  send();
  send("another node");
  expect(sent()).toEqual(["a call", byDigest, "a call"]);
});

test("a digest that the node does not know was not executed, and the text is next", async () => {
  const { told, send, sent, last } = await loadedConnection();
  send();
  last()?.giveUp(replyError("NOSCRIPT No matching script. Please use EVAL."));
  await sleep(0);
  expect(told).toEqual(["not-loaded"]);
  send();
  expect(sent()).toEqual(["a call", byDigest, "a call"]);
});

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

test("rule 2: what was closed before it was found unknown is told once", async () => {
  const { client, told, send, last } = await loadedConnection();
  send();
  client.emit("close");
  last()?.giveUp(replyError("NOSCRIPT No matching script. Please use EVAL."));
  await sleep(0);
  expect(told).toEqual(["closed"]);
});

test("a client without EVALSHA is called by the text", async () => {
  const { client, send, sent } = await loadedConnection();
  Object.assign(client, { evalsha: undefined });
  send();
  expect(sent()).toEqual(["a call", "a call"]);
});
