import { EventEmitter } from "node:events";
import fc from "fast-check";
import { describe, expect, test } from "vitest";
import { type RedisClient, RedisStore } from "../../src/index.ts";
import { type IoredisClient, IoredisPort } from "../../src/stores/redis/clients/ioredis.ts";
import { isServerError, plainError } from "../../src/stores/redis/clients/port.ts";
import { acquireReply } from "../../src/stores/redis/commands/acquire.ts";
import { completeCommand } from "../../src/stores/redis/commands/complete.ts";
import { releaseCommand } from "../../src/stores/redis/commands/release.ts";
import { toNoAnswer } from "../../src/stores/redis/redis-errors.ts";
import { asking } from "../support/asking.ts";
import { closeClients, cluster6, ioredis6 } from "../support/clients.ts";
import { commandOf } from "../support/locks.ts";

const fencingToken = 1_700_000_000_000_001;
const redisTimeMs = 1_700_000_000_000;
const holderId = "8e03978e-40d5-43dd-bc93-6894a57f9324";
const replyTo = (code: number | string | Buffer) =>
  acquireReply({ code, fencingToken, redisTimeMs });

test("exactly -1 and the negative of a token grant the lock", () => {
  expect(replyTo(-1)).toEqual({ kind: "taken", storeTimeMs: redisTimeMs, fencingToken });
  expect(replyTo(-1_600_000_000_000_000)).toEqual({
    kind: "mine",
    storeTimeMs: redisTimeMs,
    fencingToken: 1_600_000_000_000_000,
  });
  fc.assert(
    fc.property(
      fc.integer({ min: -1e15 + 1, max: Number.MAX_SAFE_INTEGER }).filter((code) => code !== -1),
      (code) => {
        expect(["contended", "outOfWindow", "mismatched", "rejected", "unknown"]).toContain(
          replyTo(code).kind,
        );
      },
    ),
  );
});

test.each([
  [0, { kind: "contended", expiresInMs: 0 }],
  [600_000, { kind: "contended", expiresInMs: 600_000 }],
  [-3, { kind: "outOfWindow" }],
  [-4, { kind: "contended", expiresInMs: Number.POSITIVE_INFINITY }],
  [-5, { kind: "mismatched", inFlight: false }],
  [-6, { kind: "mismatched", inFlight: true }],
  [-7, { kind: "rejected", misconfigured: false }],
  [`s${holderId}0`, { kind: "contended", expiresInMs: 0, sameSubmission: true, holderId }],
  [
    `s${holderId}600000`,
    { kind: "contended", expiresInMs: 600_000, sameSubmission: true, holderId },
  ],
  [-1e9, { kind: "contended", expiresInMs: 0, isCooldown: true }],
  [-1e9 - 60_000, { kind: "contended", expiresInMs: 60_000, isCooldown: true }],
  ["1a record", { kind: "completed", record: Buffer.from("1a record") }],
  ["t1what was told", { kind: "told", record: Buffer.from("1what was told") }],
])("an acquire that answers %s means one thing", (code, reply) => {
  expect(replyTo(code)).toMatchObject(reply);
  if (typeof code === "string") expect(replyTo(Buffer.from(code))).toMatchObject(reply);
});

test.each([-2, -8, -999, -1_000, -999_999_999])("an acquire never answers %i", (code) => {
  expect(replyTo(code).kind).toBe("unknown");
});

test.each([
  [1, "done"],
  [0, "gone"],
  [-1, "foreign"],
  [-2, "freed"],
  [2, "unknown"],
  [-3, "unknown"],
  ["1", "unknown"],
])("an extend or a release that answers %j means %s", (code, kind) => {
  expect(releaseCommand.read({ code, fencingToken, redisTimeMs }).kind).toBe(kind);
});

test.each([
  [1, "recorded"],
  [2, "recorded"],
  [3, "late"],
  [0, "expired"],
  [-2, "duplicate"],
  [-4, "unrecordable"],
  [-1, "unknown"],
  ["1", "unknown"],
])("a complete that answers %j means %s", (code, kind) => {
  expect(completeCommand.read({ code, fencingToken, redisTimeMs }).kind).toBe(kind);
});

/** What a store makes of whatever its client says that Redis has answered. */
async function answerTo(value: unknown) {
  const client = Object.assign(new EventEmitter(), {
    status: "ready",
    eval: () => Promise.resolve(value),
    duplicate: () => client,
    connect: () => Promise.resolve(),
    disconnect: () => {},
  });
  return await asking(new RedisStore(client as RedisClient)).acquire(commandOf()).reply;
}

describe("an answer of one entry", () => {
  test.each([
    ["null", null],
    ["OK", "OK"],
    ["QUEUED", "QUEUED"],
    ["1", 1],
    ["-1", -1],
    ["an empty array", []],
    ["an array that is too short", [redisTimeMs, fencingToken]],
    ["an array that is too long", [redisTimeMs, fencingToken, -1, -1]],
    ["an array with null", [redisTimeMs, fencingToken, null]],
    ["an array with an array", [redisTimeMs, fencingToken, [-1]]],
    ["an array with a fraction", [redisTimeMs, fencingToken, -1.5]],
    ["an array whose clock is a text", ["now", fencingToken, -1]],
    ["an array whose clock is an error", [new Error("NOPERM"), fencingToken, -1]],
    ["an array whose token is null", [redisTimeMs, null, -1]],
    ["an object", { 0: redisTimeMs, 1: fencingToken, 2: -1, length: 3 }],
  ])("is unknown where it is %s", async (_name, value) => {
    expect(await answerTo(value)).toMatchObject({ kind: "unknown" });
  });

  test("is read although stringNumbers made strings of its numbers", async () => {
    const reply = await answerTo([String(redisTimeMs), String(fencingToken), "-1"]);
    expect(reply).toEqual({ kind: "taken", storeTimeMs: redisTimeMs, fencingToken });
  });

  test("may be an error of that entry alone", async () => {
    const error = Object.assign(new Error("NOPERM no"), { name: "ReplyError" });
    const reply = await answerTo([redisTimeMs, fencingToken, error]);
    expect(reply).toMatchObject({ kind: "rejected", misconfigured: true });
  });
});

test("a text that only a server may say is not believed when the client says it", () => {
  const error = new Error("OOM command not allowed when used memory > 'maxmemory'.");
  expect(toNoAnswer({ kind: "error", error }).kind).toBe("unknown");
  error.name = "ReplyError";
  expect(toNoAnswer({ kind: "error", error }).kind).toBe("rejected");
});

test("of a client that a minifier has renamed, the server's errors are told from its own", () => {
  // As the errors of ioredis 5, whose name is that of their class.
  const ofClass = (error: Error, className: string) =>
    Object.defineProperty(error, "name", { get: () => className });
  const kindOf = (message: string, className = "a") =>
    toNoAnswer({ kind: "error", error: ofClass(new Error(message), className) });
  expect(kindOf("OOM command not allowed when used memory > 'maxmemory'.").kind).toBe("rejected");
  expect(kindOf("NOPERM this user has no permissions")).toMatchObject({ misconfigured: true });
  expect(kindOf("READONLY You can't write against a read only replica.").kind).toBe("unsent");
  for (const own of ["Command timed out", "Connection is closed.", 'Protocol error, got "H"']) {
    expect(isServerError(ofClass(new Error(own), "a"))).toBe(false);
  }
  expect(kindOf("OOM said by a wrapper", "TypeError").kind).toBe("unknown");
});

test.each(["ERR timeout", "UNKILLABLE", "ERR Error running script", "BUSYKEY Target exists"])(
  "%s says nothing about the effect",
  (message) => {
    const error = Object.assign(new Error(message), { name: "ReplyError" });
    expect(toNoAnswer({ kind: "error", error }).kind).toBe("unknown");
  },
);

test("what was thrown comes without the arguments of its command", () => {
  const error = Object.assign(new Error("BUSY"), { name: "ReplyError", command: { args: ["x"] } });
  const { cause } = toNoAnswer({ kind: "error", error }) as { cause: Error };
  expect(cause).not.toHaveProperty("command");
  expect(cause.message).toBe("BUSY");
});

test.each([
  ["NOAUTH Authentication required.", /client's password/],
  ["WRONGPASS invalid username-password pair or user is disabled.", /client's password/],
  ["ERR Protocol error: unauthenticated multibulk length", /client's password/],
  ["DENIED Redis is running in protected mode", /no client from this host/],
  ["NOPERM this user has no permissions to run the 'eval' command", /permit.*EVAL.*TIME/],
  ["ERR unknown command 'EVAL', with args beginning with: ", /permit.*EVAL.*TIME/],
  ["ERR Could not find scripting engine 'lua'", /permit.*EVAL/],
  ["NOPERM No permissions to access database", /permit.*in the client's database/],
  ["ERR The user executing the script can't run this command or subcommand", /permit.*EVAL/],
  [
    "ERR Unknown Redis command called from script script: 887c0e, on @user_script:1.",
    /permit.*EVAL/,
  ],
  ["ERR unknown command `CLIENT`, with args beginning with: `INFO`", /CLIENT INFO/],
  ["ACL failure in script: User clerk has no permissions to run the 'set' command", /permit.*EVAL/],
])("%s is a misconfiguration, and the advice says of what", (message, advice) => {
  const error = Object.assign(new Error(message), { name: "ReplyError" });
  expect(toNoAnswer({ kind: "error", error })).toMatchObject({
    kind: "rejected",
    misconfigured: true,
    advice: expect.stringMatching(advice),
  });
});

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
