import { setTimeout as sleep } from "node:timers/promises";
import type { Match } from "../../support/proxied-connection.ts";
import { until } from "../../support/until.ts";
import {
  becomeReplica,
  type Fault,
  fill,
  onTheWay,
  onTheWire,
  paused,
  refusalMs,
  send,
  unreachable,
} from "./fault.ts";

/** ioredis goes on in database 0 where its SELECT was refused. */
const elsewhere: Pick<Fault, "ownServer" | "db" | "login" | "prepare" | "strike"> = {
  ownServer: true,
  db: 5,
  login: { username: "shop", password: "shop" },
  prepare: (target) => send(target, "ACL", "SETUSER", "shop", "on", ">shop", "~*", "&*", "+@all"),
  async strike(target) {
    await send(target, "ACL", "SETUSER", "shop", "-select");
    const before = target.proxy.count("select");
    target.proxy.resetAll();
    await until(() => target.proxy.count("select") > before, { what: "the client to select" });
    // The rest of its handshake.
    await sleep(200);
    target.later(refusalMs, () => send(target, "ACL", "SETUSER", "shop", "+select"));
  },
};

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
    login: { username: "shop", password: "shop" },
    prepare: (target) => send(target, "ACL", "SETUSER", "shop", "on", ">shop", "~*", "&*", "+@all"),
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

const wrongDatabase: Fault[] = [
  {
    name: "F10 acquire",
    what: "a connection to database 5 comes up in database 0, because SELECT is refused for 0.8 s",
    on: "acquire",
    expect: "refused",
    says: "NOPERM",
    ...elsewhere,
    watchMs: 3_000,
  },
  {
    name: "F10 extend",
    what: "the same, under an order",
    on: "extend",
    expect: "released",
    ...elsewhere,
    watchMs: 3_000,
    // Longer than the TTL, so that the lease lives on only if it was extended.
    holdMs: 6_500,
  },
];

/** In which the caller gets the lock in time. */
const deliveries: Pick<Fault, "name" | "what" | "strike" | "watchMs">[] = [
  {
    name: "F1a",
    what: "applied, replies lost, later commands pass, reset after 1.5 s",
    strike: onTheWire((proxy, isOurs) => proxy.loseReplyOnce(isOurs, { resetAfterMs: 1_500 })),
    watchMs: 2_500,
  },
  {
    name: "F1b",
    what: "applied, connection dead both ways, reset after 1.5 s",
    strike: onTheWire((proxy, isOurs) =>
      proxy.loseReplyOnce(isOurs, { resetAfterMs: 1_500, deaf: true }),
    ),
    watchMs: 2_500,
  },
  {
    name: "F2",
    what: "applied, reset before the reply",
    strike: onTheWire((proxy, isOurs) => proxy.loseReplyOnce(isOurs, { resetAfterMs: 0 })),
    watchMs: 1_500,
  },
  {
    name: "F3a",
    what: "held for 1 s on an open connection",
    strike: onTheWire((proxy, isOurs) => proxy.holdRequestOnce(isOurs, { releaseAfterMs: 1_000 })),
    watchMs: 2_200,
  },
  {
    name: "F3b",
    what: "held for 1 s, the client's socket dies at 0.3 s, the held copy still lands",
    strike: onTheWire((proxy, isOurs) =>
      proxy.holdRequestOnce(isOurs, { releaseAfterMs: 1_000, resetClientAfterMs: 300 }),
    ),
    watchMs: 2_200,
  },
  {
    name: "F3c",
    what: "held for 1 s, the client's socket dies at 0.1 s, the held copy still lands",
    strike: onTheWire((proxy, isOurs) =>
      proxy.holdRequestOnce(isOurs, { releaseAfterMs: 1_000, resetClientAfterMs: 100 }),
    ),
    watchMs: 2_200,
  },
  {
    name: "F3d",
    what: "held for 0.7 s on an open connection, so that the held copy lands before its deadline",
    strike: onTheWire((proxy, isOurs) => proxy.holdRequestOnce(isOurs, { releaseAfterMs: 700 })),
    watchMs: 2_200,
  },
  {
    name: "F3e",
    what: "the same, and the client's socket dies at 0.1 s",
    strike: onTheWire((proxy, isOurs) =>
      proxy.holdRequestOnce(isOurs, { releaseAfterMs: 700, resetClientAfterMs: 100 }),
    ),
    watchMs: 2_200,
  },
  {
    name: "F3f",
    what: "held for 1.3 s, the client's socket dies at 0.1 s, the held copy lands after its deadline",
    strike: onTheWire((proxy, isOurs) =>
      proxy.holdRequestOnce(isOurs, { releaseAfterMs: 1_300, resetClientAfterMs: 100 }),
    ),
    watchMs: 2_500,
  },
  {
    name: "F4",
    what: "the reply comes after 6 s, later than the TTL",
    strike: onTheWire((proxy, isOurs) => proxy.holdReplyOnce(isOurs, { releaseAfterMs: 6_000 })),
    watchMs: 7_000,
  },
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

export const faults: Fault[] = [
  ...deliveries.map((fault): Fault => ({ ...fault, on: "acquire", expect: "acquired" })),
  ...outages.map((fault): Fault => ({ ...fault, on: "acquire" })),
  ...refusals.map(
    (fault): Fault => ({ expect: "refused", ...fault, on: "acquire", ownServer: true }),
  ),
  ...wrongDatabase,
  ...onTheWay.map(
    (fault): Fault => ({
      ...fault,
      name: `release: ${fault.name}`,
      on: "release",
      expect: "released",
      watchMs: 2_500,
    }),
  ),
  ...onTheWay.map(
    (fault): Fault => ({
      ...fault,
      name: `extend: ${fault.name}`,
      on: "extend",
      expect: "released",
      watchMs: 2_500,
      // Longer than the TTL, so that the lease lives on only if it was extended.
      holdMs: 6_500,
    }),
  ),
];

export function faultNamed(name: string): Fault {
  const found = faults.find((fault) => fault.name === name);
  if (!found) throw new Error(`There is no fault "${name}" in the fault lab.`);
  return found;
}
