import { describe, expect, test } from "vitest";
import { resolveIdempotencyOptions } from "../../../src/http/options.ts";
import { isStored, resolveStoredHeaders } from "../../../src/http/stored-answer.ts";
import { MemoryStore, SubmitLock } from "../../../src/index.ts";
import { type Page, page } from "../../docs/page.ts";
import { alerts } from "../../support/board.ts";
import { documentedMetrics, prometheusNames } from "../../support/documented-metrics.ts";
import { foundInSources, inSources, membersOf } from "./sources.ts";

const options = page("docs/reference/options.md");
const responses = page("docs/reference/responses.md");
const observing = page("docs/operations/observing.md");
const idempotency = page("docs/reference/idempotency.md");

const wordsIn = (text: string, pattern = /"([\w-]+)"/g) =>
  [...text.matchAll(pattern)].map(([, word]) => word as string);
const bare = (cell = "") => cell.replaceAll("`", "");

/** The cells of a column of one or more tables. */
function column(of: Page, headings: string[], at = 0): string[] {
  return headings.flatMap((each) => of.tableUnder(each).map((cells) => bare(cells[at])));
}

const channels = inSources(/(?<=")submit-lock:[a-z]+(?=")/g);

test.each<[what: string, rows: string[], inSource: string[]]>([
  ["option of a lock", column(options, ["`new SubmitLock`"]), membersOf("SubmitLockOptions")],
  ["option of a guard", column(options, ["`submitGuard`"]), membersOf("GuardOptions")],
  ["option of a RedisStore", column(options, ["Stores"]), membersOf("RedisStoreOptions")],
  [
    "option of idempotency",
    column(idempotency, ["Options of `idempotency`"]),
    membersOf("IdempotencyOptions"),
  ],
  ["option of instrument", column(observing, ["OpenTelemetry"]), membersOf("InstrumentOptions")],
  [
    "option of submitOnce",
    column(page("docs/guide/browser.md"), ["A cart"]),
    membersOf("SubmitOnceOptions"),
  ],
  [
    "error code",
    column(responses, ["Errors", "Process warnings"]).map(
      (cell) => wordsIn(cell, /(SUBMIT_LOCK_\w+)/g)[0] ?? "",
    ),
    inSources(/SUBMIT_LOCK_[A-Z_]+/g),
  ],
  [
    "code of a response",
    column(responses, ["Responses"], 1),
    inSources(/(?<=")(submit|idempotency)_[a-z_]+(?=")/g),
  ],
  ["channel", [...new Set(observing.text.match(/\bsubmit-lock:[a-z]+/g))], channels],
  ["metric", column(observing, ["Metrics"]), Object.keys(documentedMetrics)],
  ["alert", column(observing, ["The board and the alerts"]), wordsIn(alerts, /- alert: (\w+)$/gm)],
])("every %s has a row, and no row is of another", (_what, rows, inSource) => {
  expect(inSource.length).toBeGreaterThan(0);
  expect(rows.sort()).toEqual([...inSource].sort());
});

test.each([
  ...["WithLockOptions", "OnceOptions", "CheckOptions", "FreeOptions", "CloseOptions"],
  ...["Anonymous", "Contended", "KeyMissing", "Mismatch", "Replay", "Unavailable"],
  ...["Refused", "Problem"],
])("the reference names every member of %s", (name) => {
  const members = membersOf(name);
  expect(members.length).toBeGreaterThan(0);
  // As in `info.reason` and `reason`.
  for (const member of members) expect(options.prose).toMatch(new RegExp(`\\b${member}\``));
});

test("the guide names every option of a form, and every reason to wait", () => {
  const { text } = page("docs/guide/browser.md");
  const reasons = ["network", "in_flight", "unavailable"].map((reason) => `"${reason}"`);
  for (const name of [...membersOf("ProtectFormOptions"), ...reasons]) {
    expect(text).toContain(`\`${name}\``);
  }
});

test.each([
  ["acquire", "AcquireMessage", /outcome: ("acquired" \|.*?);/],
  ["release", "ReleaseMessage", /type ReleaseOutcome = (.*?);/],
  ["complete", "CompleteMessage", /type CompleteOutcome = (.*?);/],
  ["retire", "RetireMessage", /outcome: ("final" \|.*?);/],
  ["lost", "LostMessage", /type LostReason = (.*?);/],
  ["duplicate", "DuplicateMessage", undefined],
  ["replay", "ReplayMessage", undefined],
  ["store", "StoreMessage", /outcome: ("away" \|.*?);/],
  ["refusal", "RefusalMessage", undefined],
])("the row of submit-lock:%s names its members and outcomes", (channel, message, pattern) => {
  const row = observing.text
    .split("\n")
    .find((line) => line.startsWith(`| \`submit-lock:${channel}\``));
  const outcomes = pattern === undefined ? [] : wordsIn(foundInSources(pattern));
  if (pattern !== undefined) expect(outcomes.length).toBeGreaterThan(1);
  for (const name of [...membersOf(message), ...outcomes]) expect(row).toContain(`\`${name}\``);
});

test("a metric's row has its unit and its attributes", () => {
  const rows = observing.tableUnder("Metrics").map((cells) => cells.slice(0, 3).map(bare));
  const expected = Object.entries(documentedMetrics).map(([name, { attributes, unit }]) => {
    const names = new Set(attributes.flatMap((each) => Object.keys(each)));
    return [name, unit, [...names].join(", ")];
  });
  expect(rows).toEqual(expected);
  const series = Object.entries(documentedMetrics).flatMap((each) => prometheusNames(...each));
  const named = observing.prose.match(/\bsubmit_lock_\w+/g) ?? [];
  expect(series).toEqual(expect.arrayContaining(named));
});

describe("the reference has the bounds of", () => {
  const numbersIn = (text: string) =>
    (text.match(/\b\d{1,3}(?: \d{3})*\b/g) ?? []).map((each) => Number(each.replaceAll(" ", "")));
  const row = (of: Page, heading: string, name: string) =>
    of.tableUnder(heading).find(([first]) => bare(first) === name) ?? [];

  test.each([
    ["ttlMs", 100, 300_000],
    ["maxHoldMs", undefined, 600_000],
    ["acquireTimeoutMs", 20, undefined],
    ["commandTimeoutMs", 10, undefined],
  ] as const)("%s of a lock", (name, least, most) => {
    const [, , meaning = ""] = row(options, "`new SubmitLock`", name);
    const make = (ms: number) => () => new SubmitLock({ store: new MemoryStore(), [name]: ms });
    for (const [bound, beyond] of [
      [least, -1],
      [most, 1],
    ] as const) {
      if (bound === undefined) continue;
      expect(numbersIn(meaning)).toContain(bound);
      expect(make(bound)).not.toThrow();
      expect(make(bound + beyond)).toThrow(name);
    }
  });

  test.each(["retainMs", "maxBodyBytes", "waitMs"] as const)("%s of idempotency", (name) => {
    const [, preset = "", meaning = ""] = row(idempotency, "Options of `idempotency`", name);
    const [least = Number.NaN, most = Number.NaN] = numbersIn(meaning);
    const resolved = (given: object) => resolveIdempotencyOptions(given, 0)[name];
    expect(resolved({})).toBe(numbersIn(preset)[0]);
    for (const bound of [least, most]) expect(resolved({ [name]: bound })).toBe(bound);
    for (const beyond of [least - 1, most + 1]) {
      expect(() => resolved({ [name]: beyond })).toThrow(name);
    }
  });

  test("key and store: their defaults, and the statuses that are not kept", () => {
    for (const name of ["key", "store"] as const) {
      const [, preset] = row(idempotency, "Options of `idempotency`", name);
      expect(bare(preset)).toBe(`"${resolveIdempotencyOptions({}, 0)[name]}"`);
    }
    const [, , meaning = ""] = row(idempotency, "Options of `idempotency`", "store");
    const statuses = Array.from({ length: 100 }, (_, i) => 400 + i);
    const passing = statuses.filter((status) => !isStored("final", { status, headers: {} }));
    expect(wordsIn(meaning, /\b(4\d\d)\b/g).map(Number)).toEqual(passing);
  });

  test("the stored headers, and those that are never stored", () => {
    const [kept = [], never = []] = idempotency
      .tableUnder("Stored headers")
      .map(([, names = ""]) => wordsIn(names, /`([a-z-]+)`/g));
    expect(kept).toEqual([...resolveStoredHeaders(undefined)]);
    const pattern = foundInSources(/const never =\s*(\/.+?\/);/s).replace(/\(\?!.*?\)\)/, "");
    const inPattern = pattern.match(/[a-z]+(?:-[a-z]+)*-?/g) ?? [];
    expect([...never].sort()).toEqual(inPattern.sort());
  });
});
