import { execFileSync } from "node:child_process";
import { describe, expect, test } from "vitest";
import { Arguments, helpOf } from "../../../src/cli/context.ts";
import { toCliError } from "../../../src/cli/failure.ts";
import { free } from "../../../src/cli/free.ts";
import { userOf } from "../../../src/cli/scan.ts";
import { renewalsOf } from "../../../src/cli/show.ts";
import { count, duration, quoted } from "../../../src/cli/terminal.ts";
import {
  InvalidOptionError,
  LockMisconfiguredError,
  LockUnavailableError,
  MemoryStore,
  SubmitLock,
} from "../../../src/index.ts";
import { linesOf, lockOf } from "./fakes.ts";

describe("what is typed", () => {
  test.each<[string, string[], string]>([
    ["no command", [], "expected a command"],
    ["an unknown command", ["shw", "42"], 'got "shw"'],
    ["no user", ["show"], "show needs a user id"],
    ["two users", ["show", "42", "43"], '"43" as well'],
    ["a user where there is none", ["list", "42"], "takes options only"],
    ["an option of another command", ["show", "42", "--now"], "Unknown option '--now'"],
    [
      "a dash instead of a value",
      ["free", "42", "--id", "--now"],
      "is ambiguous. A value that begins with a hyphen: --id=-…. Try: npx",
    ],
    ["an option without its value", ["show", "42", "--url"], "argument missing"],
    [
      "an option twice",
      ["show", "42", "--prefix", "a", "--prefix", "b"],
      "--prefix may be given only once",
    ],
    ["a value for a switch", ["show", "42", "--json=yes"], "does not take an argument"],
  ])("is refused for %s, with what to do", (_what, argv, message) => {
    expect(() => new Arguments(argv)).toThrow(message);
    expect(() => new Arguments(argv)).toThrow(expect.objectContaining({ exitCode: 2 }));
  });

  test("is named where the lock refuses a prefix", async () => {
    const make = async () => new SubmitLock({ store: new MemoryStore(), keyPrefix: "shop1" });
    const refused = toCliError(await make().catch((error) => error), "redis-1:6379");
    expect([refused.message, refused.exitCode]).toEqual([
      '--prefix: expected an end that no user id has in a key, such as ":", got "shop1"',
      2,
    ]);
  });

  test("may repeat the prefix where several locks are looked at", () => {
    const args = new Arguments(["list", "--prefix", "a:", "--prefix", "b:"]);
    expect(args.texts("prefix")).toEqual(["a:", "b:"]);
  });

  test("may be a user id that begins with a dash", () => {
    const args = new Arguments(["show", "--json", "--", "-5"]);
    expect([args.user, args.has("json")]).toEqual(["-5", true]);
    expect(args.suggest("free")).toBe("npx --no-install submit-lock free -- '-5'");
  });

  test("may be the id of a submission that begins with a dash", () => {
    const id = `-${"a".repeat(21)}`;
    for (const argv of [
      ["forget", "42", id, "--reason", "none"],
      ["forget", "--reason", "none", "--", "42", id],
    ]) {
      const args = new Arguments(argv);
      expect([args.user, args.id, args.text("reason")]).toEqual(["42", id, "none"]);
    }
    const args = new Arguments(["answers", "--submission", id, "42"]);
    expect([args.user, args.text("submission")]).toEqual(["42", id]);
    const suggested = args.suggest("forget", "42", undefined, id);
    expect(suggested).toBe(`npx --no-install submit-lock forget -- 42 '${id}'`);
  });

  test("is not needed for the help", () => {
    expect(new Arguments(["show", "-h"]).has("help")).toBe(true);
  });

  test("is repeated in a suggestion as far as it says which lock, and never a password", () => {
    const argv = [
      "show",
      "o'neil",
      "--url",
      "redis://shop:sec:r@t@h:7/5",
      "--prefix",
      "lock:refund:",
      "--cluster",
    ];
    expect(new Arguments(argv).suggest("free")).toBe(
      "npx --no-install submit-lock free --prefix lock:refund: --url 'redis://shop:***@h:7/5' --cluster 'o'\\''neil'",
    );
    expect(new Arguments(["list", "--url", "/run/r.sock?db=5"]).suggest("show", "1")).toBe(
      "npx --no-install submit-lock show --url '/run/r.sock?db=5' 1",
    );
  });

  test("is read again from a suggestion as it was given, by every option that says where", () => {
    const where = (command: string) =>
      helpOf(command).flatMap((line) => /^ {2}--([\w-]+)( <)?/.exec(line)?.slice(1, 3) ?? []);
    const given = [
      "prefix",
      "url",
      "cluster",
      "sentinel",
      "master",
      "tls-ca",
      "ioredis-prefix",
      "config",
    ];
    expect(where("watch").filter((name) => name && name !== " <")).toEqual([
      ...["for", ...given.slice(0, 1), "json", "help", ...given.slice(1)],
    ]);
    const values = [
      "-a b'c\\",
      "redis://h",
      undefined,
      "h:1",
      "m\u202e\t",
      "ca.pem",
      "s:",
      "a.mjs",
    ];
    const argv = given.flatMap((name, at) =>
      values[at] === undefined ? [`--${name}`] : [`--${name}=${values[at]}`],
    );
    const line = new Arguments(["show", "-5\u0007", ...argv].with(1, "42")).suggest(
      "watch",
      "-5\u0007",
    );
    const program = `npx() { node -e 'console.log(JSON.stringify(process.argv.slice(1)))' -- "$@"; }`;
    const out = execFileSync("bash", ["-c", `${program}\n${line}`]).toString();
    const [, , name, ...words] = JSON.parse(out);
    const read = new Arguments([name, ...words]);
    expect([read.name, read.user]).toEqual(["watch", "-5\u0007"]);
    for (const [at, option] of given.entries()) {
      expect([option, read.text(option), read.has(option)]).toEqual([option, values[at], true]);
    }
  });

  test("is quoted only where a shell needs it", () => {
    expect(["42", "anna@x.de", "a b", "$HOME", ""].map(quoted)).toEqual([
      "42",
      "anna@x.de",
      "'a b'",
      "'$HOME'",
      "''",
    ]);
  });
});

describe("times", () => {
  test.each([
    [0, "0.0 s"],
    [949, "0.9 s"],
    [59_940, "59.9 s"],
    [59_960, "1 min"],
    [61_000, "1 min 1 s"],
    [3_599_600, "1 h"],
    [6_720_000, "1 h 52 min"],
    [270_000_000, "3 d 3 h"],
    [Number.POSITIVE_INFINITY, "forever"],
  ])("of %d ms read %s", (ms, text) => {
    expect(duration(ms)).toBe(text);
  });

  test.each([
    ["500ms", 500],
    ["30s", 30_000],
    ["1.5s", 1_500],
    ["2min", 120_000],
    ["1h", 3_600_000],
  ])("are typed as %s", (text, ms) => {
    expect(new Arguments(["list", "--older", text]).duration("older", 0)).toBe(ms);
  });

  test.each(["30", "s", "-1s", "1 day", ""])("are not typed as %j", (text) => {
    const args = new Arguments(["list", `--older=${text}`]);
    expect(() => args.duration("older", 0)).toThrow("--older: expected a time such as 30s");
  });

  test("and counts have their thousands apart", () => {
    expect([0, 999, 1_000, 812_034, 104_000_000].map(count)).toEqual([
      "0",
      "999",
      "1 000",
      "812 034",
      "104 000 000",
    ]);
  });
});

describe("a renewal", () => {
  const held = (renewedMs: number, expiresInMs: number, endsInMs: number) =>
    renewalsOf({
      state: "held",
      id: "0f8fad5b",
      holder: "",
      heldMs: 0,
      renewedMs,
      expiresInMs,
      endsInMs,
    });

  test.each([
    [0, 0],
    [3_400, 0],
    [4_900, 0],
    [5_100, 1],
    [8_800, 2],
    [9_900, 2],
  ])("is missed once it is half a period late: after %d ms, %d", (renewedMs, missed) => {
    expect(held(renewedMs, 10_000 - renewedMs, 40_000)?.missed).toBe(missed);
  });

  test("is not missed where maxHoldMs comes first", () => {
    expect(held(8_800, 1_200, 1_200)).toMatchObject({ missed: 0, hasEnded: true });
  });
});

test("a key tells its user, and a record's key none", () => {
  const lock = new SubmitLock({ store: new MemoryStore() });
  const users = ["42", "anna%20b", "a%2Fb%3A", "%", "42:abcdefghijklmnopqrstuv", ""].map((part) =>
    userOf(lock, `lock:submit:${part}`),
  );
  expect(users).toEqual(["42", "anna b", "a/b:", undefined, undefined, undefined]);
});

describe("an error", () => {
  test.each([
    ["WRONGPASS invalid username-password pair", 4, "user name or password"],
    ["NOAUTH Authentication required.", 4, "user name or password"],
    ["NOPERM this user has no permissions to run the 'eval' command", 4, "ACL SETUSER"],
    ["NOPERM this user has no permissions to run the 'select' command", 4, "+select"],
    ["ERR DB index is out of range", 2, "redis-1:6379: no such database"],
    ["ERR SELECT is not allowed in cluster mode", 2, "--cluster"],
    ["DENIED Redis is running in protected mode", 4, "another host"],
    ["MOVED 866 127.0.0.1:7001", 2, "--cluster"],
    ["ERR This instance has cluster support disabled", 2, "Leave --cluster out"],
    ["CLUSTERDOWN Hash slot not served", 3, "a part of the Cluster is down"],
    [
      "Too many Cluster redirections. Last error: ReplyError: CLUSTERDOWN The cluster is down",
      ...([3, "a part of the Cluster is down"] as const),
    ],
    [
      "Too many Cluster redirections. Last error: Error: Connection is closed.",
      ...([3, "Is Redis up"] as const),
    ],
    [
      "Too many Cluster redirections. Last error: ReplyError: MOVED 866 127.0.0.1:7001",
      ...([3, "redis-cli --cluster fix"] as const),
    ],
    ["Cluster is ended", 3, "Is Redis up"],
    ["READONLY You can't write against a read only replica.", 3, "the master"],
    ["OOM command not allowed when used memory > 'maxmemory'.", 3, "Raise its maxmemory"],
    ["MISCONF Redis is configured to save RDB snapshots", 3, "its disk"],
    ["NOREPLICAS Not enough good replicas to write.", 3, "too few replicas"],
    ["LOADING Redis is loading the dataset in memory", 3, "Try again in a moment"],
    ["BUSY Redis is busy running a script.", 3, "SCRIPT KILL"],
    ["self-signed certificate in certificate chain", 3, "--tls-ca"],
    ["connect ECONNREFUSED 127.0.0.1:1", 3, "no answer from redis-1:6379"],
    ["check() could not extend its test lock (gone): Redis lost it", 3, "redis-1:6379 answered,"],
    ["Redis gave an unexpected reply (null) to a script of submit-lock", 3, "-1:6379 answered,"],
  ])("says what to do: %s", (message, code, advice) => {
    const error = toCliError(new Error("outer", { cause: new Error(message) }), "redis-1:6379");
    expect(error.exitCode).toBe(code);
    expect(error.message).toContain(advice);
    expect(error.message).toContain(message.replace(/\.$/, ""));
  });

  test("that Redis itself has sent is no silence", () => {
    const reply = new Error("ERR max number of clients reached");
    reply.name = "ReplyError";
    const error = toCliError(new Error("outer", { cause: reply }), "redis-1:6379");
    expect(error.exitCode).toBe(3);
    expect(error.message).toBe(
      "redis-1:6379 answered with an error (outer: ERR max number of clients reached)",
    );
  });
});

const refused = new LockMisconfiguredError("no", { cause: new Error("NOPERM") });
const down = new LockUnavailableError("no", { cause: new Error("READONLY") });

test.each([
  ["refused for good", refused, "Nothing was changed."],
  ["refused now", down, "Nothing was changed."],
  ["wrong", new InvalidOptionError("by"), "Nothing was changed."],
  [
    "refused after a request that may have been executed",
    new LockUnavailableError("no", { cause: down }),
    "Whether the user was freed is not known. Look again: ",
  ],
  ["lost", new Error("lost"), "Whether the user was freed is not known. Look again: "],
])("a free that is %s says whether it changed anything", async (_what, error, said) => {
  const found = { state: "cooldown", id: "0f8fad5b", expiresInMs: 1_000 } as const;
  const [first] = lockOf(found).locks;
  const lock = { ...first, free: () => Promise.reject(error) };
  const argv = ["free", "42", "--id", "0f8fad5b", "--reason", "x"];
  const run = linesOf(free, argv, { locks: [lock] });
  await expect(run).rejects.toThrow(said);
});
