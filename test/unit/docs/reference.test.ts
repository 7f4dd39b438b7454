import { describe, expect, test } from "vitest";
import { MemoryStore, SubmitLock } from "../../../src/index.ts";
import { page } from "../../docs/page.ts";
import { codesOfAnswers, foundInSources, inSources, membersOf } from "./sources.ts";

const options = page("docs/reference/options.md");
const responses = page("docs/reference/responses.md");
const channels = page("docs/reference/channels.md");

/** As in `info.reason` and `reason`. */
const named = (member: string) => new RegExp(`\\b${member}\``);

describe("the reference of options", () => {
  test.each([
    "SubmitLockOptions",
    "RedisStoreOptions",
    "GuardOptions",
    "WithLockOptions",
    "OnceOptions",
    "CheckOptions",
    "FreeOptions",
    "CloseOptions",
  ])("names every option of %s", (name) => {
    const members = membersOf(name);
    expect(members.length).toBeGreaterThan(0);
    for (const option of members) expect(options.text).toContain(`\`${option}\``);
  });

  test("has a row for every option of a lock, and no other", () => {
    const rows = options.tableUnder("`new SubmitLock`").map(([name = ""]) => name);
    expect(rows).toEqual(membersOf("SubmitLockOptions").map((name) => `\`${name}\``));
  });

  test("has a row for every option of a guard, and no other", () => {
    const names = foundInSources(/const guardNames = \[\s*("lock",.*?)\]/s);
    const members = [...names.matchAll(/"(\w+)"/g)].map(([, name]) => `\`${name}\``);
    expect(members.length).toBeGreaterThan(10);
    const rows = options.tableUnder("`submitGuard`").map(([name]) => name);
    expect(rows.sort()).toEqual(members.sort());
  });

  test.each([
    ["ttlMs", 100, 300_000],
    ["maxHoldMs", undefined, 600_000],
    ["acquireTimeoutMs", 20, undefined],
    ["commandTimeoutMs", 10, undefined],
  ] as const)("has the bounds of %s", (name, least, most) => {
    const [, , meaning = ""] =
      options.tableUnder("`new SubmitLock`").find(([each]) => each === `\`${name}\``) ?? [];
    const make = (ms: number) => new SubmitLock({ store: new MemoryStore(), [name]: ms });
    const shown = (ms: number) => String(ms).replace(/\B(?=(\d{3})+$)/g, " ");
    for (const bound of [least, most].filter((ms) => ms !== undefined)) {
      expect(meaning).toContain(shown(bound));
      expect(() => make(bound)).not.toThrow();
    }
    if (least !== undefined) expect(() => make(least - 1)).toThrow(name);
    if (most !== undefined) expect(() => make(most + 1)).toThrow(name);
  });

  test("has a row for every option of a RedisStore, with its bounds", () => {
    const rows = options.tableUnder("Stores");
    expect(rows.map(([name]) => name)).toEqual(
      membersOf("RedisStoreOptions").map((name) => `\`${name}\``),
    );
    const [, , meaning = ""] = rows.find(([name]) => name === "`ackReplicas`") ?? [];
    expect(meaning).toMatch(/^1 to 100\./);
  });

  test.each(["Anonymous", "Contended", "KeyMissing", "Mismatch", "Replay", "Unavailable"])(
    "names what the info of %s holds",
    (info) => {
      for (const member of membersOf(info)) expect(options.prose).toMatch(named(member));
    },
  );

  test("names the default answer that functions are given, and its members", () => {
    for (const member of [...membersOf("Refused"), ...membersOf("Problem")]) {
      expect(options.prose).toMatch(named(member));
    }
  });
});

describe("the reference of responses and errors", () => {
  test("has a row for every error code, and no other", () => {
    const codes = inSources(/SUBMIT_LOCK_[A-Z_]+/g);
    expect(codes.length).toBeGreaterThan(8);
    const rows = ["Errors", "Process warnings"].flatMap((each) => responses.tableUnder(each));
    const named = rows.map(([first = ""]) => /SUBMIT_LOCK_[A-Z_]+/.exec(first)?.[0]);
    expect(named.sort()).toEqual(codes);
  });

  test("has a row for every code of a response, and no other", () => {
    expect(codesOfAnswers).toHaveLength(9);
    const rows = responses.tableUnder("Responses").map(([, code = ""]) => code.slice(1, -1));
    expect(rows.sort()).toEqual(codesOfAnswers);
  });
});

describe("the reference of channels", () => {
  const rowOf = (channel: string) =>
    channels.text.split("\n").find((line) => line.startsWith(`| \`${channel}\` |`));

  test("names every channel, and no other", () => {
    const inUse = inSources(/(?<=")submit-lock:[a-z]+(?=")/g);
    expect(inUse).toHaveLength(7);
    expect([...new Set(channels.text.match(/\bsubmit-lock:[a-z]+/g))].sort()).toEqual(inUse);
    for (const channel of inUse) expect(rowOf(channel)).toBeDefined();
  });

  test.each([
    ["submit-lock:acquire", "AcquireMessage"],
    ["submit-lock:release", "ReleaseMessage"],
    ["submit-lock:lost", "LostMessage"],
    ["submit-lock:retire", "RetireMessage"],
    ["submit-lock:complete", "CompleteMessage"],
    ["submit-lock:duplicate", "DuplicateMessage"],
    ["submit-lock:replay", "ReplayMessage"],
  ])("names what the messages of %s hold", (channel, message) => {
    const row = rowOf(channel);
    for (const member of membersOf(message)) expect(row).toContain(`\`${member}\``);
  });

  test.each([
    ["submit-lock:acquire", /outcome: ("acquired" \|.*?);/],
    ["submit-lock:release", /type ReleaseOutcome = (.*?);/],
    ["submit-lock:complete", /type CompleteOutcome = (.*?);/],
    ["submit-lock:retire", /outcome: ("final" \|.*?);/],
    ["submit-lock:lost", /type LostReason = (.*?);/],
  ])("names every outcome of %s", (channel, pattern) => {
    const outcomes = [...foundInSources(pattern).matchAll(/"([a-z-]+)"/g)].map(([, each]) => each);
    expect(outcomes.length).toBeGreaterThan(1);
    const row = rowOf(channel);
    for (const outcome of outcomes) expect(row).toContain(`\`${outcome}\``);
  });
});
