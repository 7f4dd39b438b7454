import fc from "fast-check";
import { expect, test } from "vitest";
import {
  acquireReply,
  ownedReply,
  scriptReply,
  toNoAnswer,
} from "../../src/stores/redis/commands.ts";

const kindOf = (code: number) => acquireReply(code, 0).kind;

test("exactly -1 and -2 grant the lock", () => {
  expect([kindOf(-1), kindOf(-2)]).toEqual(["taken", "mine"]);
  fc.assert(
    fc.property(
      fc.integer().filter((code) => code !== -1 && code !== -2),
      (code) => {
        expect(["contended", "outOfWindow", "unusable", "unknown"]).toContain(kindOf(code));
      },
    ),
  );
});

test("a number that the scripts never return is no answer", () => {
  expect(acquireReply(-5, 0).kind).toBe("unknown");
  for (const code of [2, -2, 100]) expect(ownedReply(code, 0).kind).toBe("unknown");
});

test.each([
  ["null", null],
  ["OK", "OK"],
  ["QUEUED", "QUEUED"],
  ["1", 1],
  ["-1", -1],
  ["an empty array", []],
  ["an array that is too short", [1_700_000_000_000]],
  ["an array that is too long", [1_700_000_000_000, -1, -1]],
  ["an array with null", [1_700_000_000_000, null]],
  ["an array with an array", [1_700_000_000_000, [-1]]],
  ["an array with a fraction", [1_700_000_000_000, -1.5]],
  ["an array with a text", [1_700_000_000_000, "mine"]],
  ["an object", { 0: 1, 1: -1, length: 2 }],
])("%s is no reply of a script", (_name, value) => {
  expect(scriptReply(value, 1)).toBe(undefined);
});

test("numbers that stringNumbers made strings of are read as numbers", () => {
  expect(scriptReply(["1700000000000", "-1"], 1)).toEqual({
    redisTimeMs: 1_700_000_000_000,
    codes: [-1],
  });
});

test("an error may stand for one entry, and never for the clock", () => {
  const error = new Error("NOPERM");
  expect(scriptReply([1_700_000_000_000, error, -1], 2)?.codes).toEqual([error, -1]);
  expect(scriptReply([error, -1], 1)).toBe(undefined);
});

test("a text that only a server may say is not believed when the client says it", () => {
  const error = new Error("READONLY You can't write against a read only replica.");
  expect(toNoAnswer({ kind: "error", error }).kind).toBe("unknown");
  error.name = "ReplyError";
  expect(toNoAnswer({ kind: "error", error }).kind).toBe("rejected");
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
  ["DENIED Redis is running in protected mode", /no client from this host/],
  ["NOPERM this user has no permissions to run the 'eval' command", /permit.*EVAL.*TIME/],
  ["ERR unknown command 'EVAL', with args beginning with: ", /permit.*EVAL.*TIME/],
  ["ERR The user executing the script can't run this command or subcommand", /permit.*EVAL/],
  ["ACL failure in script: User clerk has no permissions to run the 'set' command", /permit.*EVAL/],
])("%s is a misconfiguration, and the advice says of what", (message, advice) => {
  const error = Object.assign(new Error(message), { name: "ReplyError" });
  expect(toNoAnswer({ kind: "error", error })).toMatchObject({
    kind: "rejected",
    misconfigured: true,
    advice: expect.stringMatching(advice),
  });
});
