import { afterEach, beforeEach, expect, test, vi } from "vitest";
import { type IoredisClient, IoredisPort } from "../../src/stores/redis/clients/ioredis.ts";
import { Gathering } from "../../src/stores/redis/gathering.ts";
import { performance } from "../../src/time.ts";

let now: number;
beforeEach(() => {
  now = performance.now();
  vi.spyOn(performance, "now").mockImplementation(() => now);
});
afterEach(() => {
  vi.restoreAllMocks();
});

const pass = (ms: number) => {
  now += ms;
};

/** Redis 7.0.15. */
const version = 0x07_00_0f;

/** The client of one node, which answers the question as it is told to, or not yet. */
class Node {
  status = "ready";
  stream: object = {};
  options: { readOnly?: boolean } = {};
  readonly asked: unknown[][] = [];
  #settle: { resolve(value: unknown): void; reject(error: Error): void } | undefined;

  eval(...args: unknown[]): Promise<unknown> {
    this.asked.push(args);
    return new Promise((resolve, reject) => {
      this.#settle = { resolve, reject };
    });
  }

  async answer(value: unknown): Promise<void> {
    this.#settle?.resolve(value);
    await Promise.resolve();
  }

  async fail(message: string): Promise<void> {
    this.#settle?.reject(new Error(message));
    await Promise.resolve();
  }
}

const slot = 7;
const key = "lock:submit:42";

/** A Cluster of two nodes, and the node's connection that a key of the slot is gathered on. */
function openGathering(options: object = {}) {
  const nodes: Record<string, Node> = { one: new Node(), two: new Node() };
  const client = {
    isCluster: true,
    connectionPool: { getInstanceByKey: (name: string) => nodes[name] },
    options,
  };
  const gathering = new Gathering(new IoredisPort(client as unknown as IoredisClient), () => {});
  const nodeFor = (name = "one", of = slot) => {
    const server = gathering.nodeFor(of, name, key);
    return Object.values(nodes).find(({ stream }) => stream === server?.connection);
  };
  const { one, two } = nodes as { one: Node; two: Node };
  return { gathering, client, one, two, nodeFor };
}

/** The first node has said yes. */
async function openAnswered(options?: object) {
  const opened = openGathering(options);
  opened.nodeFor();
  await opened.one.answer([version, null]);
  expect(opened.nodeFor()).toBe(opened.one);
  return opened;
}

test("a node is asked once, with a key of its own, and nothing is gathered until it has answered", async () => {
  const { one, two, nodeFor } = openGathering({ keyPrefix: "shop:" });
  for (let i = 0; i < 3; i++) expect(nodeFor()).toBe(undefined);
  expect(one.asked).toEqual([
    [expect.stringContaining("redis.pcall('GET', ARGV[1])"), 0, `shop:${key}`],
  ]);
  expect(two.asked).toEqual([]);
  await one.answer([version, "a value"]);
  for (let i = 0; i < 3; i++) expect(nodeFor()).toBe(one);
  pass(3_600_000);
  expect(nodeFor("one", slot + 1)).toBe(one);
  expect(one.asked).toHaveLength(1);
  expect(nodeFor("two")).toBe(undefined);
  expect(two.asked).toHaveLength(1);
});

test("a new connection of a node is asked anew", async () => {
  const { one, nodeFor } = await openAnswered();
  one.stream = {};
  expect(nodeFor()).toBe(undefined);
  await one.answer([version, null]);
  expect(nodeFor()).toBe(one);
  expect(one.asked).toHaveLength(2);
});

test("an answer on a connection that is lost does not count for the next", async () => {
  const { one, nodeFor } = openGathering();
  nodeFor();
  one.stream = {};
  await one.answer([version, null]);
  expect(nodeFor()).toBe(undefined);
  expect(one.asked).toHaveLength(2);
});

test.each([
  ["says nothing of its version", []],
  ["is older than 7.0", [0x06_02_10, null]],
  ["answers with something else", "OK"],
  ["answers with nothing", null],
])("a server that %s is never asked again", async (_what, reply) => {
  const { one, nodeFor } = openGathering();
  nodeFor();
  await one.answer(reply);
  pass(24 * 3_600_000);
  expect(nodeFor()).toBe(undefined);
  expect(one.asked).toHaveLength(1);
});

test.each([
  ["is Redis 7.0.0", [0x07_00_00, null]],
  ["says its version as a text", [`${version}`, null]],
  ["has a list at the key", [version, new Error("WRONGTYPE Operation against a key")]],
])("a server that %s may be used", async (_what, reply) => {
  const { one, nodeFor } = openGathering();
  nodeFor();
  await one.answer(reply);
  expect(nodeFor()).toBe(one);
});

const noes: [string, (node: Node) => Promise<void>][] = [
  ["refuses the key", (node) => node.answer([version, new Error("ERR undeclared key")])],
  ["refuses the call", (node) => node.fail("NOPERM no permissions")],
  ["is silent", () => Promise.resolve()],
];

test.each(noes)(
  "a node that %s is asked again after 10 s, then 20 s, at most 10 min",
  async (_what, say) => {
    const { one, nodeFor } = openGathering();
    const seconds = [10, 20, 40, 80, 160, 320, 600, 600, 600];
    for (const [index, pause] of seconds.entries()) {
      expect(nodeFor()).toBe(undefined);
      expect(one.asked).toHaveLength(index + 1);
      await say(one);
      pass(pause * 1_000 - 1);
      expect(nodeFor()).toBe(undefined);
      expect(one.asked).toHaveLength(index + 1);
      pass(1);
    }
    nodeFor();
    await one.answer([version, null]);
    expect(nodeFor()).toBe(one);
  },
);

test("a slot that was refused goes alone for 10 s, and no other does", async () => {
  const { gathering, one, nodeFor } = await openAnswered();
  gathering.refused(slot, "one");
  expect(nodeFor()).toBe(undefined);
  expect(nodeFor("one", slot + 1)).toBe(one);
  pass(9_999);
  expect(nodeFor()).toBe(undefined);
  gathering.refused(slot, "one");
  pass(9_999);
  expect(nodeFor()).toBe(undefined);
  pass(1);
  expect(nodeFor()).toBe(one);
  expect(one.asked).toHaveLength(1);
});

test("a slot that was refused goes alone until the table names another node", async () => {
  const { gathering, one, two, nodeFor } = await openAnswered();
  nodeFor("two");
  await two.answer([version, null]);
  gathering.refused(slot, "one");
  expect(nodeFor("one")).toBe(undefined);
  expect(nodeFor("two")).toBe(two);
  // It has come back, and nothing was refused since.
  expect(nodeFor("one")).toBe(one);
});

test("nothing is gathered on a connection that is not ready, or that reads from a replica", async () => {
  const { one, nodeFor } = await openAnswered();
  for (const status of ["wait", "connecting", "connect", "reconnecting", "close", "end"]) {
    one.status = status;
    expect(nodeFor()).toBe(undefined);
  }
  one.status = "ready";
  one.options = { readOnly: true };
  expect(nodeFor()).toBe(undefined);
  one.options = { readOnly: false };
  expect(nodeFor()).toBe(one);
  expect(one.asked).toHaveLength(1);
});

test.each([
  ["a prefix that is no text", { keyPrefix: Buffer.from([0xff]) }],
  ["automatic pipelining on its nodes", { redisOptions: { enableAutoPipelining: true } }],
])("nothing is gathered, and no node asked, with %s", (_what, options) => {
  const { one, nodeFor } = openGathering(options);
  expect(nodeFor()).toBe(undefined);
  expect(one.asked).toEqual([]);
});

test("a prefix that is a text in a Buffer is put in front as one", async () => {
  const { one } = await openAnswered({ keyPrefix: Buffer.from("größe:") });
  expect(one.asked[0]?.[2]).toBe(`größe:${key}`);
});

test.each([
  ["one server", { isCluster: false }],
  ["a Cluster that does not show its nodes", { connectionPool: undefined }],
  ["a Cluster whose pool has another face", { connectionPool: {} }],
])("nothing is gathered on the client of %s", (_what, members) => {
  const { client, one } = openGathering();
  const other = { ...client, ...members } as unknown as IoredisClient;
  const gathering = new Gathering(new IoredisPort(other), () => {});
  expect(gathering.nodeFor(slot, "one", key)).toBe(undefined);
  expect(one.asked).toEqual([]);
});
