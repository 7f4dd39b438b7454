import { setTimeout as sleep } from "node:timers/promises";
import type { Match } from "../../support/proxied-connection.ts";
import { until } from "../../support/until.ts";
import {
  becomeReplica,
  type Fault,
  fill,
  held,
  onTheWire,
  paused,
  refusalMs,
  replyLate,
  replyLost,
  type Strike,
  send,
  unreachable,
} from "./fault.ts";
import { type Library, longRetainMs, submitLock, submitOnce } from "./libraries.ts";

/** A user of the server who may do less for a while. */
const asShop: Pick<Fault, "login" | "prepare"> = {
  login: { username: "shop", password: "shop" },
  prepare: (target) => send(target, "ACL", "SETUSER", "shop", "on", ">shop", "~*", "&*", "+@all"),
};

/** ioredis goes on in database 0 where its SELECT was refused. */
const elsewhere = {
  ownServer: true,
  db: 5,
  ...asShop,
  watchMs: 3_000,
  async strike(target) {
    await send(target, "ACL", "SETUSER", "shop", "-select");
    const before = target.proxy.count("select");
    target.proxy.resetAll();
    await until(() => target.proxy.count("select") > before, { what: "the client to select" });
    // The rest of its handshake.
    await sleep(200);
    target.later(refusalMs, () => send(target, "ACL", "SETUSER", "shop", "+select"));
  },
} satisfies Partial<Fault>;

/** The server says that it does not execute the acquire; a replica's refusal is waited for. */
const refusals: (Omit<Fault, "on" | "expect" | "ownServer"> & Partial<Pick<Fault, "expect">>)[] = [
  {
    name: "F9 READONLY",
    what: "the server is a replica for 0.8 s",
    expect: "back in time",
    strike: (target) => becomeReplica(target, "yes"),
    watchMs: 2_000,
  },
  {
    name: "F9 LOADING",
    what: "the server reads its data in for 0.8 s",
    says: "LOADING",
    // 0.4 ms for each of the keys, and an ear for clients after each kilobyte.
    serverArgs: [
      ...["--enable-debug-command", "yes", "--key-load-delay", "400"],
      ...["--loading-process-events-interval-bytes", "1024"],
    ],
    prepare: (target) => send(target, "DEBUG", "POPULATE", 2_000, "ballast", 600),
    async strike(target) {
      const loaded = send(target, "DEBUG", "RELOAD").catch(() => {});
      target.later(0, () => loaded);
      const isLoading = async () =>
        String(await send(target, "INFO", "persistence")).includes("loading:1");
      await until(isLoading, { what: "the server to be loading" });
    },
    watchMs: 2_500,
  },
  {
    name: "F9 OOM",
    what: "the server is at its maxmemory for 0.8 s",
    says: "OOM",
    strike: fill,
    watchMs: 2_000,
  },
  {
    name: "F9 NOPERM",
    what: "the user may not write for 0.8 s",
    says: "NOPERM",
    ...asShop,
    async strike(target) {
      const may = (...rules: string[]) => send(target, "ACL", "SETUSER", "shop", ...rules);
      await may("-@scripting", "-@write");
      target.later(refusalMs, () => may("+@all"));
    },
    watchMs: 2_000,
  },
  {
    name: "F9 MASTERDOWN",
    what: "the server is a replica without its master for 0.8 s",
    expect: "back in time",
    strike: (target) => becomeReplica(target, "no"),
    watchMs: 2_000,
  },
];

/** Longer than the TTL, so that the lease lives on only if it was extended. */
const extendedMs = 6_500;

const wrongDatabase: Fault[] = [
  {
    name: "F10 acquire",
    what: "a connection to database 5 comes up in database 0, because SELECT is refused for 0.8 s",
    on: "acquire",
    expect: "refused",
    says: "NOPERM",
    ...elsewhere,
  },
  {
    name: "F10 extend",
    what: "the same, under an order",
    on: "extend",
    expect: "released",
    ...elsewhere,
    holdMs: extendedMs,
  },
];

/** In which the caller gets the lock in time. */
const deliveries: [name: string, what: string, watchMs: number, strike: Strike][] = [
  [
    "F1a",
    "applied, replies lost, later commands pass, reset after 1.5 s",
    2_500,
    replyLost({ resetAfterMs: 1_500 }),
  ],
  [
    "F1b",
    "applied, connection dead both ways, reset after 1.5 s",
    2_500,
    replyLost({ resetAfterMs: 1_500, deaf: true }),
  ],
  ["F2", "applied, reset before the reply", 1_500, replyLost({ resetAfterMs: 0 })],
  ["F3a", "held for 1 s on an open connection", 2_200, held({ releaseAfterMs: 1_000 })],
  [
    "F3b",
    "held for 1 s, the client's socket dies at 0.3 s, the held copy still lands",
    2_200,
    held({ releaseAfterMs: 1_000, resetClientAfterMs: 300 }),
  ],
  [
    "F3c",
    "held for 1 s, the client's socket dies at 0.1 s, the held copy still lands",
    2_200,
    held({ releaseAfterMs: 1_000, resetClientAfterMs: 100 }),
  ],
  [
    "F3d",
    "held for 0.7 s on an open connection, so that the held copy lands before its deadline",
    2_200,
    held({ releaseAfterMs: 700 }),
  ],
  [
    "F3e",
    "the same, and the client's socket dies at 0.1 s",
    2_200,
    held({ releaseAfterMs: 700, resetClientAfterMs: 100 }),
  ],
  [
    "F3f",
    "held for 1.3 s, the client's socket dies at 0.1 s, the held copy lands after its deadline",
    2_500,
    held({ releaseAfterMs: 1_300, resetClientAfterMs: 100 }),
  ],
  ["F4", "the reply comes after 6 s, later than the TTL", 7_000, replyLate(6_000)],
];

/** The first command on either connection reaches Redis when the caller has had its answer. */
const heldOnBoth = onTheWire(async (proxy, isOurs) => {
  let first: number | undefined;
  const isFirst: Match = (argv, connection) => {
    const matches = isOurs(argv);
    if (matches) first = connection;
    return matches;
  };
  await proxy.holdRequestOnce(isFirst, { releaseAfterMs: 1_100 });
  // A confirm after the default 200 ms is still in time at 1.1 s.
  const isElsewhere: Match = (argv, connection) => connection !== first && isOurs(argv);
  void proxy.holdRequestOnce(isElsewhere, { releaseAfterMs: 900 });
});

const outages: Omit<Fault, "on">[] = [
  {
    name: "F5",
    what: "held until 1.1 s on both connections, the held copies land after the answer",
    expect: "unavailable",
    strike: heldOnBoth,
    watchMs: 2_500,
  },
  {
    name: "F6",
    what: "Redis unreachable for 3 s, asked at 0.3 s",
    expect: "unavailable",
    strike: unreachable(3_000, 300),
    watchMs: 5_500,
  },
  {
    name: "F6 back",
    what: "Redis unreachable for 3 s, asked at 2.6 s",
    expect: "back in time",
    strike: unreachable(3_000, 2_600),
    watchMs: 5_500,
  },
  {
    name: "F7",
    what: "SCRIPT FLUSH before each command, an extend among them",
    expect: "acquired",
    ownServer: true,
    strike: (target) => target.proxy.waitBeforeEachRequest(() => send(target, "SCRIPT", "FLUSH")),
    watchMs: 3_000,
    holdMs: 2_200,
  },
  {
    name: "F8",
    what: "server paused for 2 s, asked at 0.3 s",
    expect: "unavailable",
    ownServer: true,
    strike: paused(2_000, 300),
    watchMs: 3_500,
  },
  {
    name: "F8 back",
    what: "server paused for 2 s, asked at 1.4 s",
    expect: "back in time",
    ownServer: true,
    strike: paused(2_000, 1_400),
    watchMs: 3_500,
  },
];

/** What can become of one command on its way; the connections that are opened later are healthy. */
const onTheWay: [name: string, what: string, strike: Strike][] = [
  ["reply lost", "applied, replies lost, reset after 1.5 s", replyLost({ resetAfterMs: 1_500 })],
  ["reset after", "applied, reset before the reply", replyLost({ resetAfterMs: 0 })],
  [
    "reset before",
    "reset before Redis sees it",
    onTheWire((proxy, isOurs) => proxy.resetBeforeOnce(isOurs)),
  ],
  ["held", "held for 1 s on an open connection", held({ releaseAfterMs: 1_000 })],
];

function onTheWayOf(on: Fault["on"], more: Pick<Fault, "expect" | "holdMs">): Fault[] {
  return onTheWay.map(([name, what, strike]) => {
    return { name: `${on}: ${name}`, what, on, strike, watchMs: 2_500, ...more };
  });
}

/** Every fault on an acquire, a release and an extend. */
export const faults: readonly Fault[] = [
  ...deliveries.map(([name, what, watchMs, strike]): Fault => {
    return { name, what, watchMs, strike, on: "acquire", expect: "acquired" };
  }),
  ...outages.map((fault): Fault => ({ ...fault, on: "acquire" })),
  ...refusals.map(
    (fault): Fault => ({ expect: "refused", ...fault, on: "acquire", ownServer: true }),
  ),
  ...wrongDatabase,
  ...onTheWayOf("release", { expect: "released" }),
  ...onTheWayOf("extend", { expect: "released", holdMs: extendedMs }),
];

/** The shortest `retainMs` that a lock with the default times allows. */
const shortRetainMs = 2_000;

const atTheEnd: Omit<Fault, "on" | "expect" | "watchMs">[] = [
  {
    name: "late copy",
    what: "held for 1 s, the client's socket dies at 0.1 s, the held copy still lands",
    strike: held({ releaseAfterMs: 1_000, resetClientAfterMs: 100 }),
  },
  {
    name: "full Redis",
    what: "the server is at its maxmemory for 0.8 s",
    ownServer: true,
    strike: fill,
  },
  {
    name: "READONLY",
    what: "the server is a replica for 0.8 s",
    ownServer: true,
    awayMs: refusalMs,
    strike: (target) => becomeReplica(target, "yes"),
  },
  {
    name: "Redis away",
    what: "Redis unreachable for 1 s",
    awayMs: 1_000,
    strike: unreachable(1_000, 0),
  },
  {
    name: "Redis paused",
    what: "server paused for 1 s",
    ownServer: true,
    awayMs: 1_000,
    strike: paused(1_000, 0),
  },
];

/** Those after which a copy of the acquire may land when the record is there. */
const lateAcquires = faults.filter(({ name }) => ["F3b", "F3d", "F3f", "F4"].includes(name));

/** Every fault on the command that records the answer of a submission and lets go of its lock. */
export const completeFaults: readonly Fault[] = [
  ...onTheWayOf("complete", { expect: "recorded" }),
  {
    name: "complete: reply late",
    what: "the reply comes after 3 s",
    on: "complete",
    expect: "recorded",
    strike: replyLate(3_000),
    watchMs: 3_500,
  },
  {
    name: "complete: copy after expiry",
    what: "held, the client's socket dies at 0.1 s, and the held copy lands when the record has expired",
    on: "complete",
    expect: "recorded",
    retainMs: shortRetainMs,
    strike: held({ releaseAfterMs: shortRetainMs + 1_000, resetClientAfterMs: 100 }),
    watchMs: shortRetainMs + 2_000,
  },
  ...atTheEnd.map(({ name, ...fault }): Fault => {
    const [on, expect] = ["complete", "recorded"] as const;
    return { ...fault, name: `complete: ${name}`, on, expect, watchMs: 2_500 };
  }),
  ...lateAcquires.map(({ name, what, ...fault }): Fault => {
    return { ...fault, name: `complete: ${name}`, what: `of a submission: ${what}` };
  }),
];

export const allFaults: readonly Fault[] = [...faults, ...completeFaults];

/** What a fault of this lab is for: the lock, or the lock with the answer of a submission. */
export function libraryFor(fault: Fault): Library {
  if (!completeFaults.includes(fault)) return submitLock;
  return submitOnce(fault.retainMs ?? longRetainMs);
}

export function faultNamed(name: string): Fault {
  const found = allFaults.find((fault) => fault.name === name);
  if (!found) throw new Error(`There is no fault "${name}" in the fault lab.`);
  return found;
}
