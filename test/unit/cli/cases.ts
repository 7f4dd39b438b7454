import { Arguments } from "../../../src/cli/context.ts";
import { free } from "../../../src/cli/free.ts";
import { type Listed, listText } from "../../../src/cli/list.ts";
import { type Found, show as runShow } from "../../../src/cli/show.ts";
import { plain } from "../../../src/cli/terminal.ts";
import { changeOf, watchLine } from "../../../src/cli/watch.ts";
import type { FreedInspection, Inspection } from "../../../src/lock/store.ts";
import { at, examined, type Facts, type Info, linesOf, lockOf, type ServerFacts } from "./fakes.ts";

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
const foreign: Found = { state: "foreign", id: "356a192b", expiresInMs: 6_720_000 };
const endless: Found = { ...foreign, expiresInMs: Number.POSITIVE_INFINITY };
const noText: Found = { ...endless, id: "5d1aa9c0", notText: true };
const freed: FreedInspection = {
  state: "freed",
  id: "0f8fad5b",
  by: "anna@ops-1",
  reason: "ticket 4711",
  expiresInMs: 8_800,
};
const cooldown: Found = { state: "cooldown", id: "0f8fad5b", expiresInMs: 1_400 };
const older: Found = {
  state: "held",
  id: "6fa459ea",
  holder: "",
  heldMs: undefined,
  renewedMs: undefined,
  expiresInMs: 9_400,
  endsInMs: undefined,
};
const likeOlder: Found = { ...older, expiresInMs: 6_720_000 };
const setBack: Found = {
  ...working,
  heldMs: 0,
  renewedMs: 0,
  expiresInMs: 3_604_000,
  clockSetBack: true,
};
const last: Found = {
  ...working,
  heldMs: 53_000,
  renewedMs: 3_000,
  expiresInMs: 7_000,
  endsInMs: 7_000,
};
const unrenewed: Found = { ...last, heldMs: 3_000 };
const nameless: Found = { ...working, holder: "" };

/** The output of a command, and its heading in `texts.md`. */
export interface Case {
  readonly title: string;
  /** The line that was typed. */
  readonly command: string;
  readonly lines: readonly string[];
}

async function show(title: string, user: string, found: Inspection): Promise<Case> {
  const lines = await linesOf(runShow, ["show", user], lockOf(found));
  return { title, command: `npx --no-install submit-lock show ${user}`, lines };
}

const shows: Case[] = [
  await show("An order is under way", "42", working),
  await show("An order is under way, of a lock without `holder`", "45", nameless),
  await show("An order is near `maxHoldMs`", "46", last),
  await show("An order is under way, of a lock that is never renewed", "50", unrenewed),
  await show("The process has died, or is cut off", "77", silent),
  await show("The user is free", "43", { state: "free" }),
  await show("Freed a moment ago", "44", freed),
  await show("In a cooldown", "47", cooldown),
  await show("Another lock", "1009", foreign),
  await show("Another lock, without an expiry", "1010", endless),
  await show("A lock of submit-lock 0.1, or of another library", "48", likeOlder),
  await show("No lock at all", "49", noText),
  await show("A lock after Redis' clock was set back", "52", setBack),
  await show("A cooldown after Redis' clock was set back", "53", {
    ...cooldown,
    expiresInMs: 3_601_000,
    clockSetBack: true,
  }),
];

const by = ["--by", "anna@ops-1"];
const reason = "ticket 4711";
const given = ["--id", "0f8fad5b", "--reason", reason];
const typed = `--id 0f8fad5b --reason "${reason}"`;

interface Freed {
  /** The options that are shown, where the case shows less than it runs. */
  readonly shown?: string;
  readonly options?: readonly string[];
  /** Of the person at the terminal. Without a first one, only the warning is printed. */
  readonly answers?: readonly string[];
  readonly freeInMs?: number;
}

async function freeing(title: string, user: string, found: Found, more: Freed): Promise<Case> {
  const { options = [], answers, freeInMs } = more;
  const shown = ["npx --no-install submit-lock free", user, more.shown ?? options.join(" ")];
  const argv = ["free", user, ...options, ...by];
  const lines = await linesOf(free, argv, lockOf(found, freeInMs), answers);
  return { title, command: shown.join(" ").trim(), lines };
}

const atTerminal = [reason, "0f8fad5b"];
const asked = { answers: [] };

const frees: Case[] = [
  await freeing("On a terminal", "42", working, { answers: atTerminal, freeInMs: 8_800 }),
  await freeing("Without a terminal", "42", working, {
    shown: typed,
    options: given,
    freeInMs: 8_800,
  }),
  await freeing("The incident's key", "1009", foreign, {
    shown: `--id 356a192b --reason "${reason}"`,
    options: ["--id", "356a192b", "--reason", reason],
    freeInMs: 0,
  }),
  await freeing(
    "The id of another order",
    "42",
    { ...working, id: "77ab01c2", heldMs: 300 },
    {
      shown: typed,
      options: given,
    },
  ),
  await freeing(
    "Only look",
    "42",
    { ...working, heldMs: 6_000, expiresInMs: 7_900 },
    {
      options: ["--dry-run"],
    },
  ),
  await freeing("At once", "42", working, { options: ["--now"], answers: atTerminal, freeInMs: 0 }),
  await freeing("What is said of a dead process", "77", silent, asked),
  await freeing("What is said of another lock", "1009", foreign, asked),
  await freeing("What is said of no lock at all", "49", noText, asked),
  await freeing("What is said of a lock after Redis' clock was set back", "52", setBack, asked),
  await freeing("What is said of a cooldown", "47", cooldown, asked),
  await freeing("What is said of a lock of 0.1, or of another library", "48", likeOlder, asked),
  await freeing("Freed already", "44", freed, asked),
  await freeing(
    "Freed already, before Redis' clock was set back",
    "54",
    { ...freed, expiresInMs: 3_600_000, clockSetBack: true },
    asked,
  ),
];

function list(title: string, found: Listed, ...options: string[]): Case {
  const args = new Arguments(["list", ...options]);
  const lines = listText(found, "database 0 of redis-1:6379", args, plain);
  const command = ["npx --no-install submit-lock list", ...options].join(" ");
  return { title, command, lines };
}

const listed: Listed = {
  keyPrefix: "lock:submit:",
  locks: [
    { user: "1009", found: foreign },
    { user: "77", found: silent },
    { user: "42", found: working },
    {
      user: "anna@x.de",
      found: { ...working, heldMs: 300, renewedMs: 300, expiresInMs: 9_700, endsInMs: 59_700 },
    },
    { user: "44", found: freed },
    { user: "47", found: cooldown },
  ],
  looked: 812_034,
  total: 812_034,
  partial: undefined,
  tookMs: 9_040,
};
const seldom: Listed = {
  ...listed,
  locks: [
    { user: "1010", found: endless },
    { user: "49", found: noText },
    { user: "48", found: likeOlder },
    { user: "51", found: older },
  ],
};

const large = {
  ...{ looked: 910_000, total: 104_000_000, tookMs: 10_003 },
  partial: "Use a longer --budget",
};

const lists: Case[] = [
  list("Some locks", listed),
  list("No locks", { ...listed, locks: [], looked: 3, tookMs: 2 }),
  list("What is seldom seen", seldom),
  list("A large Redis", { ...listed, ...large }, "--no-ids", "--limit", "2"),
];

/** The looks of `watch` that saw a change or stand before one, each so many ms after the first. */
function watched(looks: readonly (readonly [afterMs: number, found: Inspection])[]): string[] {
  return looks.flatMap(([afterMs, found], look) => {
    const before = looks[look - 1]?.[1];
    const change = changeOf(before, found);
    const now = new Date(at.getTime() + afterMs);
    return change === undefined ? [] : [watchLine(now, change, found, before)];
  });
}

const taken: Found = { ...working, heldMs: 100, renewedMs: 100 };
const next: Found = { ...silent, id: "77ab01c2", heldMs: 50, renewedMs: 50 };

const watches: Case[] = [
  {
    title: "Two orders",
    command: "npx --no-install submit-lock watch 42",
    lines: watched([
      [0, { state: "free" }],
      [1_000, taken],
      [4_200, { ...taken, heldMs: 3_300, renewedMs: 3_300 }],
      [4_400, { ...taken, heldMs: 3_500, renewedMs: 150 }],
      [4_600, { ...taken, heldMs: 3_700, renewedMs: 350 }],
      [4_800, { ...cooldown, expiresInMs: 1_900 }],
      [6_800, { state: "free" }],
      [9_000, next],
      [10_200, { ...freed, id: "77ab01c2" }],
      [19_000, { state: "free" }],
    ]),
  },
  {
    title: "A key of another lock",
    command: "npx --no-install submit-lock watch 1009",
    lines: watched([
      [0, endless],
      [200, endless],
      [400, { state: "free" }],
      [1_400, foreign],
    ]),
  },
];

export const right: Info = {
  redis_version: "7.0.15",
  redis_mode: "standalone",
  role: "master",
  connected_slaves: "0",
  maxmemory: "0",
  maxmemory_policy: "noeviction",
  evicted_keys: "0",
  aof_enabled: "1",
  aof_last_write_status: "ok",
  rdb_last_bgsave_status: "ok",
};

export const rightServer: ServerFacts = {
  address: "redis-1:6379",
  info: right,
  isClusterNode: false,
};

export const rightFacts: Facts = {
  servers: [rightServer],
  sentinels: [],
  check: { tookMs: 0.8, failure: undefined },
  prefixes: [{ keyPrefix: "lock:submit:", foreign: 0, endless: 0, setBack: 0, isComplete: true }],
};

async function doctor(title: string, facts: Partial<Facts>, user?: string): Promise<Case> {
  const lines = await examined({ ...rightFacts, ...facts }, user);
  return { title, command: "npx --no-install submit-lock doctor", lines };
}

const node = (address: string, more: Partial<ServerFacts>): ServerFacts => ({
  ...rightServer,
  address,
  info: { ...right, redis_mode: "cluster" },
  isClusterNode: true,
  cluster: { cluster_state: "ok", cluster_slots_ok: "16384" },
  nodeTimeoutMs: 5_000,
  ...more,
});

const doctors: Case[] = [
  await doctor("A right server", {}),
  await doctor("A wrong one", {
    servers: [
      {
        ...rightServer,
        info: {
          ...right,
          maxmemory: "100000000",
          maxmemory_policy: "volatile-ttl",
          evicted_keys: "1204",
          aof_enabled: "0",
          connected_slaves: "2",
        },
      },
    ],
    prefixes: [
      { keyPrefix: "lock:submit:", foreign: 37, endless: 12, setBack: 1, isComplete: true },
    ],
  }),
  await doctor("A cache", {
    servers: [
      {
        ...rightServer,
        info: {
          ...right,
          maxmemory: "100000000",
          maxmemory_policy: "allkeys-lru",
          aof_enabled: "0",
        },
      },
    ],
  }),
  await doctor("As a user of the lock", { prefixes: undefined }, "checkout"),
  await doctor("A Cluster", {
    servers: [
      node("redis-1:6379", {}),
      node("redis-2:6379", { nodeTimeoutMs: 15_000 }),
      node("redis-3:6379", {
        failure: "Connection is closed.",
      }),
    ],
  }),
];

/** By command. */
export const cases: Readonly<Record<string, readonly Case[]>> = {
  show: shows,
  free: frees,
  list: lists,
  watch: watches,
  doctor: doctors,
};
