import { describe, expect, test } from "vitest";
import { resolveIdempotencyOptions } from "../../../src/http/options.ts";
import { isStored, resolveStoredHeaders } from "../../../src/http/stored-answer.ts";
import { MemoryStore, SubmitLock } from "../../../src/index.ts";
import { page } from "../../docs/page.ts";
import { differences } from "../../lab/nets/answers/differences.ts";
import { alerts } from "../../support/board.ts";
import { documentedMetrics, prometheusNames } from "../../support/documented-metrics.ts";
import { codesOfAnswers, foundInSources, inSources, membersOf } from "./sources.ts";

const options = page("docs/reference/options.md");
const responses = page("docs/reference/responses.md");
const channels = page("docs/operations/observing.md");

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
    const names = foundInSources(/const guardNames = (\[.*?\]) as const/s);
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

const observing = page("docs/operations/observing.md");
const bare = (cell = ""): string => cell.replaceAll("`", "");

describe("the page on observing", () => {
  test("has a row for every metric, with its unit and its attributes", () => {
    const rows = observing
      .tableUnder("Metrics")
      .map(([name, unit, attributes]) => [bare(name), bare(unit), bare(attributes)]);
    const expected = Object.entries(documentedMetrics).map(([name, { attributes, unit }]) => {
      const names = new Set(attributes.flatMap((each) => Object.keys(each)));
      return [name, unit, [...names].join(", ")];
    });
    expect(rows).toEqual(expected);
  });

  test("names series of Prometheus that there are", () => {
    const series = Object.entries(documentedMetrics).flatMap(([name, metric]) =>
      prometheusNames(name, metric),
    );
    const named = observing.prose.match(/\bsubmit_lock_\w+/g) ?? [];
    expect(named.length).toBeGreaterThan(1);
    for (const name of named) expect(series).toContain(name);
  });

  test("has a row for every option of instrument", () => {
    const rows = observing.tableUnder("OpenTelemetry").map(([name]) => bare(name));
    expect(rows).toEqual(membersOf("InstrumentOptions"));
  });

  test("has a row for every alert, with its severity", () => {
    const rows = observing
      .tableUnder("The board and the alerts")
      .map(([name, severity]) => [bare(name), severity]);
    const found = [...alerts.matchAll(/- alert: (\w+)$.*?severity: (\w+)$/gms)];
    expect(rows).toEqual(found.map(([, name, severity]) => [name, severity]));
  });
});

const reference = page("docs/reference/idempotency.md");
const guide = page("docs/guide/once.md");

/** The first column of a table, without its backticks. */
function namesIn(rows: string[][]): string[] {
  return rows.map(([name = ""]) => name.replaceAll("`", ""));
}

function numbersIn(text: string): number[] {
  return (text.match(/\b\d{1,3}(?: \d{3})*\b/g) ?? []).map((each) =>
    Number(each.replaceAll(" ", "")),
  );
}

describe("the reference of idempotency", () => {
  const options = new Map(
    reference
      .tableUnder("Options of `idempotency`")
      .map(([name = "", preset = "", meaning = ""]) => [
        name.replaceAll("`", ""),
        { preset, meaning },
      ]),
  );

  test("names every option, and no other", () => {
    expect([...options.keys()]).toEqual(membersOf("IdempotencyOptions"));
  });

  test.each(["retainMs", "maxBodyBytes", "waitMs"] as const)("has the bounds of %s", (name) => {
    const { preset = "", meaning = "" } = options.get(name) ?? {};
    const [least = Number.NaN, most = Number.NaN] = numbersIn(meaning);
    expect(resolveIdempotencyOptions({}, 0)[name]).toBe(numbersIn(preset)[0]);
    for (const bound of [least, most]) {
      expect(resolveIdempotencyOptions({ [name]: bound }, 0)[name]).toBe(bound);
    }
    for (const beyond of [least - 1, most + 1]) {
      expect(() => resolveIdempotencyOptions({ [name]: beyond }, 0)).toThrow(name);
    }
  });

  test.each(["key", "store"] as const)("has the default of %s", (name) => {
    expect(`\`"${resolveIdempotencyOptions({}, 0)[name]}"\``).toBe(options.get(name)?.preset);
  });

  test('has the statuses that store "final" does not keep', () => {
    const { meaning = "" } = options.get("store") ?? {};
    const listed = (meaning.match(/\b4\d\d\b/g) ?? []).map(Number);
    const statuses = Array.from({ length: 100 }, (_, i) => 400 + i);
    const passing = statuses.filter((status) => !isStored("final", { status, headers: {} }));
    expect(listed).toEqual(passing);
  });

  test("has every stored header, and each that is never stored", () => {
    const [kept = [], never = []] = reference
      .tableUnder("Stored headers")
      .map(([, names = ""]) =>
        [...names.matchAll(/`([a-z-]+)`/g)].map(([, name]) => name as string),
      );
    expect(kept).toEqual([...resolveStoredHeaders(undefined)]);
    expect(never.length).toBeGreaterThan(10);
    for (const name of never) {
      expect(() => resolveStoredHeaders([name])).toThrow("never repeated");
    }
    const list = foundInSources(/const never = new Set\(\[(.*?)\]\)/s);
    expect(never).toEqual([...list.matchAll(/"([a-z-]+)"/g)].map(([, name]) => name));
  });

  test("names every member of a submission", () => {
    const names = namesIn(reference.tableUnder("In the handler"));
    expect(names.map((name) => name.replace("()", ""))).toEqual(["id", "source", "doNotStore"]);
  });
});

describe("the paragraph for a shop's own documentation", () => {
  const paragraph = guide.prose.match(/^> .*$/gm)?.join("\n") ?? "";

  test("tells how long answers are kept, and every code", () => {
    expect(numbersIn(paragraph)).toContain(resolveIdempotencyOptions({}, 0).retainMs);
    const codes = codesOfAnswers.filter((code) => code.startsWith("idempotency_"));
    for (const code of codes) expect(paragraph).toContain(`\`${code}\``);
  });
});

test("the page on the HTTP lifecycle has each difference that the same-answer net allows", () => {
  const rows = differences.map(({ families, name, why }) => {
    return `| ${name} | ${families.length === 4 ? "all" : families.join(", ")} | ${why} |`;
  });
  const { text } = page("docs/internals/http-lifecycle.md");
  const shown = text.slice(text.indexOf("## Differences that are meant")).match(/^\| .*\|$/gm);
  expect(shown?.slice(1)).toEqual(rows);
});
