import { describe, expect, test } from "vitest";
import { Arguments, helpOf } from "../../../src/cli/context.ts";
import { exitCode } from "../../../src/cli/failure.ts";
import { free } from "../../../src/cli/free.ts";
import { type Listed, listText, longHeld } from "../../../src/cli/list.ts";
import { commands } from "../../../src/cli/main.ts";
import { changeOf, type Found, show, watchLine } from "../../../src/cli/show.ts";
import { plain } from "../../../src/cli/terminal.ts";
import type { FreedInspection, Inspection } from "../../../src/lock/store.ts";
import { page } from "../../docs/page.ts";
import { at, linesOf, lockOf } from "./fakes.ts";

const npx = "npx --no-install submit-lock";

const working: Found = {
  state: "held",
  id: "0f8fad5b",
  holder: "api-7f9c5d4b8-x2z7q:17",
  heldMs: 4_200,
  renewedMs: 900,
  expiresInMs: 9_100,
  endsInMs: 55_800,
};
const silent: Found = {
  state: "held",
  id: "9c41be07",
  holder: "api-7f9c5d4b8-m4k2p:17",
  heldMs: 25_100,
  renewedMs: 8_800,
  expiresInMs: 1_200,
  endsInMs: 34_900,
};
/** Of another library, which keeps a bare UUID. */
const bare: Found = {
  state: "held",
  id: "6fa459ea",
  holder: "",
  heldMs: undefined,
  renewedMs: undefined,
  expiresInMs: 6_720_000,
  endsInMs: undefined,
};
const foreign: Found = { state: "foreign", id: "356a192b", expiresInMs: 6_720_000 };
const endless: Found = {
  ...foreign,
  valueStart: "web-3:<b>",
  expiresInMs: Number.POSITIVE_INFINITY,
};
const noText: Found = { ...foreign, expiresInMs: Number.POSITIVE_INFINITY, notText: true };
const freed: FreedInspection = {
  state: "freed",
  id: "0f8fad5b",
  by: "anna@ops-1",
  reason: "ticket 4711",
  expiresInMs: 8_800,
};
const cooldown: Found = { state: "cooldown", id: "0f8fad5b", expiresInMs: 1_400 };
const last = { ...working, renewedMs: 3_000, expiresInMs: 7_000, endsInMs: 7_000 };
const setBack = { expiresInMs: 3_604_000, clockSetBack: true } as const;

describe("show tells of a lock", () => {
  test.each<[what: string, found: Inspection, facts: string[], not?: string[]]>([
    [
      "whose process is alive",
      working,
      [
        ...["13:05:02, 4.2 s ago", "api-7f9c5d4b8-x2z7q:17", "0.9 s ago (every 3.3 s)"],
        ...["13:06:02 (in 55.8 s); the order may go on", "0f8fad5b", "in 10.0 s at most"],
        `Only if the handler looks at its signal: ${npx} free --id 0f8fad5b --reason 'an order that hangs' 42\nSafe with any handler: wait, or end process 17 on api-7f9c5d4b8-x2z7q, with`,
      ],
      ["--now"],
    ],
    [
      "of a holder without a name",
      { ...working, holder: "" },
      ["4.2 s ago", "or end its process, with"],
      ["where"],
    ],
    [
      "near maxHoldMs: it was renewed for the last time",
      { ...last, heldMs: 53_000 },
      [
        ...["13:04:13, 53.0 s ago", "3.0 s ago, for the last time", "at the latest in 7.0 s"],
        "is placing an order, unless its process has died",
      ],
      ["every", "right now"],
    ],
    ["that is never renewed", { ...last, heldMs: 3_000 }, ["renewed  never"], ["for the last"]],
    [
      "whose process has died",
      silent,
      ["missed 2 renewals", "13:04:41, 25.1 s ago", "by itself in 1.2 s"],
      [`${npx} free`, "renewed  "],
    ],
    ["that is free", { state: "free" }, ["lock:submit:42 in database 0 of redis-1:6379"]],
    ["that was freed", freed, ["anna@ops-1 (ticket 4711)", "in 8.8 s"], [`${npx} free`]],
    ["in a cooldown", cooldown, ["at 13:05:07 (in 1.4 s)", "Do not free"], [`${npx} free`]],
    [
      "of another lock",
      foreign,
      [
        "1 h 52 min",
        "not notified",
        "Safe: wait 1 h 52 min.",
        `${npx} free --id 356a192b --reason`,
      ],
      ["maxHoldMs", "a newer lock"],
    ],
    [
      "without an expiry",
      endless,
      [
        "no expiry",
        "maxHoldMs to live, 1 min by default",
        'value    "web-3:<b>"\n',
        "356a192b, which a newer lock",
      ],
    ],
    ["of another lock with a long value", { ...foreign, valueStart: "a".repeat(16) }, ['aaa" …\n']],
    ["that holds no text", noText, ["holds no text", "another prefix"], ["not notified"]],
    [
      "of another library",
      bare,
      [
        "by another library",
        "1 h 52 min",
        "Safe: wait 1 h 52 min.",
        `${npx} free --id 6fa459ea --reason 'its process is gone' --now 42`,
      ],
    ],
    [
      "after Redis' clock was set back",
      { ...working, ...setBack, heldMs: 0, renewedMs: 0 },
      [
        "Redis' clock was set back",
        "for another 1 h",
        "to ttlMs",
        "click once, which cuts",
        "--now 42",
      ],
      ["since", "renewed  "],
    ],
    [
      "in a cooldown that was stamped before the clock was set back",
      { ...cooldown, ...setBack },
      ["14:05:10 (in 1 h)", "cuts the time to 1 min"],
    ],
  ])("%s", async (_what, found, facts, not = []) => {
    const text = (await linesOf(show, ["show", "42"], lockOf(found))).join("\n");
    for (const fact of facts) expect(text).toContain(fact);
    for (const each of not) expect(text).not.toContain(each);
  });
});

// What it does is tried on a real Redis: test/redis/cli-free.test.ts.
describe("free tells a person", () => {
  const asked = (found: Found, ...options: string[]) =>
    linesOf(free, ["free", "42", "--by", "anna@ops-1", ...options], lockOf(found, 8_800), []);

  test.each([working, silent, bare, foreign, noText, cooldown])(
    "of the lock what show tells, before it asks: %o",
    async (found) => {
      const shown = await linesOf(show, ["show", "42"], lockOf(found));
      const lines = await asked(found);
      expect(lines).toEqual(shown.slice(0, lines.length));
      expect(lines.length).toBeGreaterThanOrEqual(shown.length - 2);
      // The safe way, which free does not take.
      if (lines.length < shown.length) expect(shown.at(-1)).toMatch(/^Safe/);
    },
  );

  test("how long the next order waits without --now", async () => {
    expect((await asked(working, "--now")).join("\n")).toMatch(/--now .* in 10\.0 s at most/);
  });

  test.each<[found: Found, options: string[], when: string]>([
    [working, [], "in 10.0 s at most"],
    [working, ["--now"], "at once"],
    [cooldown, [], "at once"],
    [foreign, [], "at once"],
  ])("by --dry-run when the next order would start: %o %j", async (found, options, when) => {
    const dryRun = [...options, "--dry-run", "--id", "id" in found ? found.id : ""];
    expect((await asked(found, ...dryRun)).join()).toMatch(
      new RegExp(`^Would free user 42 .* let the next order start ${when}\\. Nothing was changed`),
    );
  });

  test("that the lock was freed already, and how much a clock that was set back adds", async () => {
    expect((await asked(freed)).join()).toMatch(/^Already freed .* in 8\.8 s\./);
    const late = await asked({ ...freed, ...setBack });
    expect(late.join()).toMatch(/ in 1 h, or 5 min after the next click\./);
  });
});

const large: Listed = {
  keyPrefix: "lock:submit:",
  locks: [
    { user: "1009", found: foreign },
    { user: "77", found: silent },
    { user: "42", found: working },
    { user: "anna@x.de", found: { ...working, heldMs: 300, renewedMs: 300, endsInMs: 59_700 } },
    { user: "44", found: freed },
    { user: "47", found: cooldown },
  ],
  outlived: [],
  strange: [],
  looked: 910_000,
  total: 104_000_000,
  partial: "Use a longer --budget",
  tookMs: 10_003,
};

function list(found: Partial<Listed>, ...options: string[]): string[] {
  const args = new Arguments(["list", ...options]);
  const listed = { ...large, ...found };
  return listText(listed, longHeld(listed.locks), "database 0 of redis-1:6379", args, plain);
}

describe("list", () => {
  test("has a column for each thing that is known of a lock", () => {
    const seldom = [
      { user: "1010", found: endless },
      { user: "49", found: noText },
      { user: "48", found: bare },
    ];
    const lines = list({ locks: [...large.locks, ...seldom], partial: undefined });
    expect(lines[0]).toContain("9 locks (2 working, 1 silent, 1 unknown, 1 freed, 1 cooldown, 3 ");
    expect(lines[0]).toContain("held for 25.1 s");
    const columns = lines.slice(2, -1).map((line) => line.split(/ {2,}/));
    expect(columns.map((cells) => cells.slice(0, 5))).toEqual([
      ["1009", "foreign", "?", "-", "1 h 52 min"],
      ["77", "silent", "25.1 s", "8.8 s (2)", "1.2 s"],
      ["42", "working", "4.2 s", "0.9 s", "≤ 55.8 s"],
      ["anna@x.de", "working", "0.3 s", "0.3 s", "≤ 59.7 s"],
      ["44", "freed", "-", "-", "8.8 s"],
      ["47", "cooldown", "-", "-", "1.4 s"],
      ["1010", "foreign", "?", "-", "never"],
      ["49", "foreign", "?", "-", "never"],
      ["48", "unknown", "?", "?", "1 h 52 min"],
    ]);
    const holders = columns.map((cells) => cells[5]);
    expect(holders.slice(1, 3)).toEqual(["api-7f9c5d4b8-m4k2p:17", "api-7f9c5d4b8-x2z7q:17"]);
    expect(holders[0]).toContain(`${npx} show 1009`);
    expect(holders[4]).toContain("anna@ops-1 (ticket 4711)");
    expect(holders[7]).toContain("no text");
  });

  test("does not promise the end of maxHoldMs where the key lives longer", () => {
    const found = { ...last, heldMs: 58_000, endsInMs: 2_000 };
    const lines = list({ locks: [{ user: "42", found }] });
    expect(lines[2]).toContain("≤ 7.0 s");
  });

  test("of no lock says where to look", () => {
    const lines = list({ locks: [], looked: 3, partial: undefined });
    expect(lines.join("\n")).toMatch(new RegExp(`0 locks\n.*${npx} show USER\n.*3 keys`));
  });

  test("suggests commands that look at the same lock", () => {
    const lines = list({ keyPrefix: "b:" }, "--prefix", "a:", "--prefix", "b:", "--tls-ca", "x y");
    expect(lines.join("\n")).toContain(
      `another lock: ${npx} show --prefix b: --tls-ca 'x y' 1009\n`,
    );
  });

  test("counts and shows the keys that are of no user id", () => {
    const strange = ["lock:submit:auth0|42", "lock:submit:%zz\u0007"];
    const text =
      "2 keys under this prefix are of no user id, and may be locks of another program, or of a keyOf that hashes the id";
    const named = `${text}: lock:submit:auth0|42, lock:submit:%zz\\u{7}`;
    expect(list({ locks: [], strange })).toContain(named);
    expect(list({ locks: [], strange }, "--no-ids")).toContain(text);
  });

  test.each<[string, number[], number[]]>([
    ["ten times the others and 5 s", [200, 300, 250, 180_000], [180_000]],
    ["half of its maxHoldMs, alone", [300_000], [300_000]],
    ["half of its maxHoldMs, beside others like it", [310_000, 300_000], [310_000, 300_000]],
    ["less than 5 s", [20, 30, 4_900], []],
    ["less than ten times the others", [8_000, 9_000, 60_000], []],
    ["alone and below half", [180_000], []],
  ])("marks an order that is at work for %s", (_what, ages, long) => {
    const locks = ages.map((heldMs, at) => ({
      user: `${at}`,
      found: { ...working, heldMs, endsInMs: 600_000 - heldMs },
    }));
    const marked = [...longHeld(locks)].map((found) => found.state === "held" && found.heldMs);
    expect(marked).toEqual(long);
    const rows = list({ locks }).filter((line) => line.includes(" (long) "));
    expect(rows).toHaveLength(long.length);
    for (const row of rows) expect(row).toMatch(/: npx --no-install submit-lock show \d$/);
  });
});

/** The looks of `watch` that saw a change or stand before one, each so many ms after the first. */
function watched(looks: readonly (readonly [afterMs: number, found: Inspection])[]): string[] {
  return looks.flatMap(([afterMs, found], look) => {
    const before = looks[look - 1]?.[1];
    const change = changeOf(before, found);
    const now = new Date(at.getTime() + afterMs);
    return change === undefined ? [] : [watchLine(now, change, found, before)];
  });
}

test("watch has a line for each change, with the time of the clock", () => {
  const taken: Found = { ...working, heldMs: 100, renewedMs: 100 };
  const lines = watched([
    [0, { state: "free" }],
    [1_000, taken],
    [4_200, { ...taken, heldMs: 3_300, renewedMs: 3_300 }],
    [4_400, { ...taken, heldMs: 3_500, renewedMs: 150 }],
    [4_600, { ...taken, heldMs: 3_700, renewedMs: 350 }],
    [4_800, { ...cooldown, expiresInMs: 1_900 }],
    [6_800, { state: "free" }],
    [9_000, { ...silent, id: "77ab01c2", heldMs: 50, renewedMs: 50 }],
    [10_200, { ...freed, id: "77ab01c2" }],
    [19_000, { state: "free" }],
  ]);
  expect(lines.map((line) => line.split(/ +/).slice(0, 2).join(" "))).toEqual([
    "13:05:06.200 free",
    "13:05:07.200 taken",
    "13:05:10.600 renewed",
    "13:05:11.000 cooldown",
    "13:05:13.000 free",
    "13:05:15.200 taken",
    "13:05:16.400 freed",
    "13:05:25.200 free",
  ]);
  expect(lines[1]).toContain("api-7f9c5d4b8-x2z7q:17 0f8fad5b");
  expect(lines[3]).toContain("1.9 s");
  expect(lines[1]).not.toContain(" ago");
  expect(watched([[0, working]])[0]).toMatch(/0f8fad5b 4\.2 s ago$/);
  expect(lines[6]).toContain("anna@ops-1 (ticket 4711), ends in 8.8 s");
});

const reference = page("docs/reference/cli.md");

describe("the reference shows of", () => {
  const given = ["--id", "0f8fad5b", "--reason", "ticket 4711", "--by", "anna@ops-1"];
  const shown: Record<string, () => string[] | Promise<string[]>> = {
    show: () => linesOf(show, ["show", "77"], lockOf(silent)),
    free: () => linesOf(free, ["free", "42", ...given], lockOf(working, 8_800)),
  };

  test.each(Object.keys(shown))("%s an output as it is", async (name) => {
    const lines = (await shown[name]?.()) ?? [];
    const [command, ...output] = reference.blockUnder(name, "text").trimEnd().split("\n");
    expect(command).toMatch(new RegExp(`^\\$ ${npx} ${name}`));
    expect(lines).toEqual(output);
  });
});

/** The options of a help text, as they are typed. */
function typedIn(help: readonly string[]): string[] {
  return help.flatMap((line) => /^ {2}(--[\w-]+(?: <[^>]+>)?) /.exec(line)?.[1] ?? []);
}

describe.each(Object.keys(commands))("the options of %s", (name) => {
  const typed = typedIn(helpOf(name)).sort();

  test("are in its help, as they are read from the command line", () => {
    for (const option of typed.filter((each) => each !== "--help")) {
      const [flag = "", value] = option.split(" ");
      const usage = helpOf(name)[0] ?? "";
      const id = usage.includes("<id>") ? ["a".repeat(22)] : [];
      const user = usage.includes("<user>") ? ["42", ...id] : [];
      const more = value === undefined ? [] : ["a value"];
      const args = new Arguments([name, ...user, flag, ...more]);
      expect(args.has(flag.slice(2))).toBe(true);
      expect(args.text(flag.slice(2))).toBe(value && "a value");
      expect(() => new Arguments([name, ...user, `${flag}x`])).toThrow("Unknown option");
    }
  });

  test("are in the reference", () => {
    const rows = ["Where Redis is", "Options of every command", name].flatMap((heading) =>
      reference.tableUnder(heading).map(([option = ""]) => option.replaceAll("`", "")),
    );
    expect(rows.sort()).toEqual(typed);
  });
});

test("the help fits into 100 columns", () => {
  const lines = [undefined, ...Object.keys(commands)].flatMap(helpOf);
  expect(lines.filter((line) => line.length > 100)).toEqual([]);
});

test("the reference names every exit code", () => {
  const codes = reference.tableUnder("Exit codes").map(([code]) => Number(code));
  expect(codes).toEqual(Object.values(exitCode));
});
