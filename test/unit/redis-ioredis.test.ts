import { expect, test } from "vitest";
import { type IoredisClient, IoredisPort } from "../../src/stores/redis/clients/ioredis.ts";
import { plainError } from "../../src/stores/redis/clients/port.ts";
import { closeClients, cluster6, ioredis6 } from "../support/clients.ts";

const lazyConnect = true;

test.each([
  ["a host and a port", ioredis6.connect(7_000, { lazyConnect }), "127.0.0.1:7000"],
  ["an IPv6 address", { status: "wait", options: { host: "::1", port: 6_379 } }, "[::1]:6379"],
  ["a socket", ioredis6.connect(1, { lazyConnect, path: "/run/redis.sock" }), "/run/redis.sock"],
  [
    "Sentinels",
    ioredis6.connect(1, { lazyConnect, name: "shop", sentinels: [{ host: "s1", port: 26_379 }] }),
    'the master "shop" of the Sentinels at s1:26379',
  ],
  [
    "a Cluster",
    cluster6.connect([7_001, 7_002, 7_003], { lazyConnect }),
    "the Cluster at 127.0.0.1:7001 and 2 more",
  ],
  ["nothing that is known here", { status: "wait" }, "Redis"],
  ["a Cluster that shows nothing", { status: "wait", isCluster: true }, "the Cluster"],
  [
    "startup nodes of every kind",
    { isCluster: true, startupNodes: ["redis://u:secret@h:1", 7, "h:2", { host: "::1" }] },
    "the Cluster at h:1 and 2 more",
  ],
])("the address of a client with %s", (_name, client, address) => {
  expect(new IoredisPort(client as IoredisClient).address).toBe(address);
  closeClients();
});

test("an error comes with its name and code, and without the arguments of its command", () => {
  const error = Object.assign(new Error("connect ECONNREFUSED"), {
    code: "ECONNREFUSED",
    command: { args: ["owner id"] },
  });
  error.name = "ReplyError";
  const plain = plainError(error);
  expect(plain).toMatchObject({ message: error.message, name: "ReplyError", code: "ECONNREFUSED" });
  expect(plain).not.toHaveProperty("command");
  expect(plainError(new Error("x"))).not.toHaveProperty("code");
  expect(plainError("a string").message).toBe("a string");
});

test("the error of a host with several addresses says what each of them did", () => {
  const refused = (address: string) => new Error(`connect ECONNREFUSED ${address}`);
  const error = new AggregateError([refused("::1:1"), refused("127.0.0.1:1")]);
  expect(plainError(error).message).toBe(
    "connect ECONNREFUSED ::1:1, connect ECONNREFUSED 127.0.0.1:1",
  );
});

test("of a Cluster whose nodes all failed, it is the server's own word that counts", () => {
  const said = Object.assign(new Error("NOAUTH Authentication required."), { name: "ReplyError" });
  const failed = (lastNodeError: Error) =>
    plainError(Object.assign(new Error("Failed to refresh slots cache."), { lastNodeError }));
  expect(failed(said).message).toBe(said.message);
  expect(failed(new Error("Connection is closed.")).message).toBe("Failed to refresh slots cache.");
});
