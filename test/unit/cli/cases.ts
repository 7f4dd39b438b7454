import { doctorText, reportOf } from "../../../src/cli/doctor.ts";
import type { Facts, Info, ServerFacts } from "../../../src/cli/doctor-findings.ts";
import {
  alreadyFreedText,
  beforeFreeing,
  changedText,
  dryRunText,
  freedText,
} from "../../../src/cli/free.ts";
import { type Listed, type ListView, listText } from "../../../src/cli/list.ts";
import type { Found } from "../../../src/cli/show.ts";
import { showText } from "../../../src/cli/show.ts";
import { plain, program } from "../../../src/cli/terminal.ts";
import { changeOf, watchLine } from "../../../src/cli/watch.ts";
import type { FreedInspection, Inspection } from "../../../src/lock/on-call.ts";

/** 13:05:06.2, wherever the test runs. */
const at = new Date(2026, 10, 21, 13, 5, 6, 200);

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

const redis = "database 0 of redis-1:6379";

/** The output of a command, and its heading in `texts.md`. */
export interface Case {
  readonly title: string;
  /** The line that was typed. */
  readonly command: string;
  readonly lines: readonly string[];
}

function show(title: string, user: string, found: Inspection): Case {
  const suggest = (command: string) => `${program} ${command} ${user}`;
  const place = `key lock:submit:${user} in ${redis}`;
  const view = { user, found, at, place, suggest, paint: plain };
  const lines = showText(view);
  return { title, command: `npx --no-install submit-lock show ${user}`, lines };
}

const shows: Case[] = [
  show("An order is under way", "42", working),
  show("An order is under way, of a lock without `holder`", "45", nameless),
  show("An order is near `maxHoldMs`", "46", last),
  show("An order is under way, of a lock that is never renewed", "50", unrenewed),
  show("The process has died, or is cut off", "77", silent),
  show("The user is free", "43", { state: "free" }),
  show("Freed a moment ago", "44", freed),
  show("In a cooldown", "47", cooldown),
  show("Another lock", "1009", foreign),
  show("Another lock, without an expiry", "1010", endless),
  show("A lock of submit-lock 0.1, or of another library", "48", likeOlder),
  show("No lock at all", "49", noText),
  show("A lock after Redis' clock was set back", "52", setBack),
  show("A cooldown after Redis' clock was set back", "53", {
    ...cooldown,
    expiresInMs: 3_601_000,
    clockSetBack: true,
  }),
];

const by = "anna@ops-1";
const reason = "ticket 4711";
const options = `--id 0f8fad5b --reason "${reason}"`;

/** What a person reads and types to free the order under way. */
const onTerminal = (now: boolean, freeInMs: number): string[] => [
  ...beforeFreeing("42", working, now, at),
  `Why, for the audit line (such as a ticket's number): ${reason}`,
  "Type the id (0f8fad5b) to free user 42: 0f8fad5b",
  ...freedText("42", by, reason, freeInMs),
];

const frees: Case[] = [
  {
    title: "On a terminal",
    command: "npx --no-install submit-lock free 42",
    lines: onTerminal(false, 8_800),
  },
  {
    title: "Without a terminal",
    command: `npx --no-install submit-lock free 42 ${options}`,
    lines: freedText("42", by, reason, 8_800),
  },
  {
    title: "The incident's key",
    command: `npx --no-install submit-lock free 1009 --id 356a192b --reason "${reason}"`,
    lines: [...beforeFreeing("1009", foreign, false, at), ...freedText("1009", by, reason, 0)],
  },
  {
    title: "The id of another order",
    command: `npx --no-install submit-lock free 42 ${options}`,
    lines: changedText({ ...working, id: "77ab01c2", heldMs: 300 }, `${program} show 42`),
  },
  {
    title: "Only look",
    command: "npx --no-install submit-lock free 42 --dry-run",
    lines: dryRunText("42", { ...working, heldMs: 6_000, expiresInMs: 7_900 }, false),
  },
  {
    title: "At once",
    command: "npx --no-install submit-lock free 42 --now",
    lines: onTerminal(true, 0),
  },
  {
    title: "What is said of a dead process",
    command: "npx --no-install submit-lock free 77",
    lines: beforeFreeing("77", silent, false, at),
  },
  {
    title: "What is said of another lock",
    command: "npx --no-install submit-lock free 1009",
    lines: beforeFreeing("1009", foreign, false, at),
  },
  {
    title: "What is said of no lock at all",
    command: "npx --no-install submit-lock free 49",
    lines: beforeFreeing("49", noText, false, at),
  },
  {
    title: "What is said of a lock after Redis' clock was set back",
    command: "npx --no-install submit-lock free 52",
    lines: beforeFreeing("52", setBack, false, at),
  },
  {
    title: "What is said of a cooldown",
    command: "npx --no-install submit-lock free 47",
    lines: beforeFreeing("47", cooldown, false, at),
  },
  {
    title: "What is said of a lock of 0.1, or of another library",
    command: "npx --no-install submit-lock free 48",
    lines: beforeFreeing("48", likeOlder, false, at),
  },
  {
    title: "Freed already",
    command: "npx --no-install submit-lock free 44",
    lines: alreadyFreedText("44", freed),
  },
];

const view: ListView = {
  address: "redis-1:6379",
  redis,
  limit: 100,
  hidesIds: false,
  paint: plain,
};
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
  isComplete: true,
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

const lists: Case[] = [
  {
    title: "Some locks",
    command: "npx --no-install submit-lock list",
    lines: listText(listed, view),
  },
  {
    title: "No locks",
    command: "npx --no-install submit-lock list",
    lines: listText({ ...listed, locks: [], looked: 3, tookMs: 2 }, view),
  },
  {
    title: "What is seldom seen",
    command: "npx --no-install submit-lock list",
    lines: listText(seldom, view),
  },
  {
    title: "A large Redis",
    command: "npx --no-install submit-lock list --no-ids --limit 2",
    lines: listText(
      { ...listed, looked: 910_000, total: 104_000_000, isComplete: false, tookMs: 10_003 },
      { ...view, hidesIds: true, limit: 2 },
    ),
  },
];

/** The looks of `watch` that saw a change or stand before one, each so many ms after the first. */
function watched(looks: readonly (readonly [afterMs: number, found: Inspection])[]): string[] {
  return looks.flatMap(([afterMs, found], look) => {
    const before = looks[look - 1]?.[1];
    const change = changeOf(before, found);
    const now = new Date(at.getTime() + afterMs);
    return change === undefined ? [] : [watchLine(now, change, before, found)];
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
  run_id: "3f2a77",
  role: "master",
  connected_slaves: "0",
  maxmemory: "0",
  maxmemory_policy: "noeviction",
  used_memory: "1000000",
  evicted_keys: "0",
  aof_enabled: "1",
  aof_last_write_status: "ok",
  rdb_last_bgsave_status: "ok",
};

export const rightServer: ServerFacts = {
  address: "redis-1:6379",
  info: right,
  secondRunId: "3f2a77",
  isClusterNode: false,
  cluster: undefined,
  nodeTimeoutMs: undefined,
  latency: { count: 50, medianMs: 0.3, p99Ms: 0.9 },
};

export const rightFacts: Facts = {
  times: { ttlMs: 10_000, commandTimeoutMs: 200 },
  servers: [rightServer],
  sentinels: [],
  check: { tookMs: 0.8, failure: undefined },
  prefixes: [{ keyPrefix: "lock:submit:", foreign: 0, endless: 0, setBack: 0, isComplete: true }],
};

function doctor(title: string, facts: Partial<Facts>, user?: string): Case {
  const report = reportOf({ ...rightFacts, ...facts }, user);
  return {
    title,
    command: "npx --no-install submit-lock doctor",
    lines: doctorText(report, plain),
  };
}

const node = (address: string, more: Partial<ServerFacts>): ServerFacts => ({
  ...rightServer,
  address,
  info: { ...right, redis_mode: "cluster" },
  isClusterNode: true,
  secondRunId: undefined,
  cluster: { cluster_state: "ok", cluster_slots_ok: "16384" },
  nodeTimeoutMs: 5_000,
  ...more,
});

const doctors: Case[] = [
  doctor("A right server", {}),
  doctor("A wrong one", {
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
        secondRunId: "91bc00",
      },
    ],
    prefixes: [
      { keyPrefix: "lock:submit:", foreign: 37, endless: 12, setBack: 1, isComplete: true },
    ],
  }),
  doctor("A cache", {
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
  doctor("As a user of the lock", { prefixes: undefined }, "checkout"),
  doctor("A Cluster", {
    servers: [
      node("redis-1:6379", {}),
      node("redis-2:6379", { nodeTimeoutMs: 15_000 }),
      node("redis-3:6379", {
        failure:
          "no answer from redis-3:6379. Is the address right, and can this host reach it? (Connection is closed)",
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
