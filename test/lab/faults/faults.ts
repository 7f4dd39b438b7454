import { setTimeout as sleep } from "node:timers/promises";
import type { SharedOptions } from "../../support/clients.ts";
import { command } from "../../support/command.ts";
import type { Match } from "../../support/proxied-connection.ts";
import type { RedisProxy } from "../../support/proxy.ts";
import type { RedisServer } from "../../support/server-process.ts";
import { until } from "../../support/until.ts";

/** What a fault can reach. */
export interface FaultTarget {
  /** Between the caller and Redis; observer and rivals are not behind it. */
  readonly proxy: RedisProxy;
  /** Its own server, where the fault needs one. */
  readonly server: Pick<RedisServer, "port" | "pause" | "resume">;
  /** Whether a request is about the user's lock. */
  readonly isOurs: (argv: string[]) => boolean;
  /** The fault happens when the proxy says so. */
  whenStruck(struck: Promise<unknown>): void;
  /** Something that happens later in the cell, and is waited for at its end. */
  later(ms: number, what: () => unknown): void;
}

/** What the cells of a fault must show; bounds.ts has the numbers. */
type Expectation = "acquired" | "unavailable" | "back in time" | "refused" | "released";

export interface Fault {
  readonly name: string;
  readonly what: string;
  /** Which command it hits. */
  readonly on: "acquire" | "release" | "extend";
  readonly expect: Expectation;
  /** The word with which the server refuses. */
  readonly says?: string;
  /** Whether it disturbs the server itself, and so needs one of its own. */
  readonly ownServer?: true;
  readonly serverArgs?: readonly string[];
  /** Who the caller logs in as. */
  readonly login?: SharedOptions;
  /** Before the caller's connection is made. */
  prepare?(target: FaultTarget): Promise<unknown> | unknown;
  /** Just before the command that it hits is sent; the caller goes on when it has resolved. */
  strike(target: FaultTarget): Promise<unknown> | unknown;
  /** How long after the strike something may still come. */
  readonly watchMs: number;
  /** How long the caller works. */
  readonly holdMs?: number;
}

const send = (target: FaultTarget, name: string, ...args: (string | number)[]) =>
  command(target.server.port, name, ...args);

/** Set before the command is sent, it strikes when the command comes by. */
const onTheWire =
  (trap: (proxy: RedisProxy, isOurs: FaultTarget["isOurs"]) => Promise<void>) =>
  (target: FaultTarget): void =>
    target.whenStruck(trap(target.proxy, target.isOurs));

const onAcquire: Fault[] = [
  {
    name: "F1a",
    what: "applied, replies lost, later commands pass, reset after 1.5 s",
    on: "acquire",
    expect: "acquired",
    strike: onTheWire((proxy, isOurs) => proxy.loseReplyOnce(isOurs, { resetAfterMs: 1_500 })),
    watchMs: 2_500,
  },
  {
    name: "F1b",
    what: "applied, connection dead both ways, reset after 1.5 s",
    on: "acquire",
    expect: "acquired",
    strike: onTheWire((proxy, isOurs) =>
      proxy.loseReplyOnce(isOurs, { resetAfterMs: 1_500, deaf: true }),
    ),
    watchMs: 2_500,
  },
  {
    name: "F2",
    what: "applied, reset before the reply",
    on: "acquire",
    expect: "acquired",
    strike: onTheWire((proxy, isOurs) => proxy.loseReplyOnce(isOurs, { resetAfterMs: 0 })),
    watchMs: 1_500,
  },
  {
    name: "F3a",
    what: "held for 1 s on an open connection",
    on: "acquire",
    expect: "acquired",
    strike: onTheWire((proxy, isOurs) => proxy.holdRequestOnce(isOurs, { releaseAfterMs: 1_000 })),
    watchMs: 2_200,
  },
  {
    name: "F3b",
    what: "held for 1 s, the client's socket dies at 0.3 s, the held copy still lands",
    on: "acquire",
    expect: "acquired",
    strike: onTheWire((proxy, isOurs) =>
      proxy.holdRequestOnce(isOurs, { releaseAfterMs: 1_000, resetClientAfterMs: 300 }),
    ),
    watchMs: 2_200,
  },
  {
    name: "F3c",
    what: "held for 1 s, the client's socket dies at 0.1 s, the held copy still lands",
    on: "acquire",
    expect: "acquired",
    strike: onTheWire((proxy, isOurs) =>
      proxy.holdRequestOnce(isOurs, { releaseAfterMs: 1_000, resetClientAfterMs: 100 }),
    ),
    watchMs: 2_200,
  },
  {
    name: "F3d",
    what: "held for 0.7 s on an open connection, so that the held copy lands before its deadline",
    on: "acquire",
    expect: "acquired",
    strike: onTheWire((proxy, isOurs) => proxy.holdRequestOnce(isOurs, { releaseAfterMs: 700 })),
    watchMs: 2_200,
  },
  {
    name: "F3e",
    what: "the same, and the client's socket dies at 0.1 s",
    on: "acquire",
    expect: "acquired",
    strike: onTheWire((proxy, isOurs) =>
      proxy.holdRequestOnce(isOurs, { releaseAfterMs: 700, resetClientAfterMs: 100 }),
    ),
    watchMs: 2_200,
  },
  {
    name: "F3f",
    what: "held for 1.3 s, the client's socket dies at 0.1 s, the held copy lands after its deadline",
    on: "acquire",
    expect: "acquired",
    strike: onTheWire((proxy, isOurs) =>
      proxy.holdRequestOnce(isOurs, { releaseAfterMs: 1_300, resetClientAfterMs: 100 }),
    ),
    watchMs: 2_500,
  },
  {
    name: "F4",
    what: "the reply comes after 6 s, later than the TTL",
    on: "acquire",
    expect: "acquired",
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

/** Redis cannot be reached for 3 s; the caller comes `callAfterMs` into it. */
const unreachable = (callAfterMs: number) => async (target: FaultTarget) => {
  await target.proxy.refuse(true);
  target.proxy.resetAll();
  target.later(3_000, () => target.proxy.refuse(false));
  await sleep(callAfterMs);
};

/** The server is stopped for 2 s; the caller comes `callAfterMs` into it. */
const paused = (callAfterMs: number) => async (target: FaultTarget) => {
  target.server.pause();
  target.later(2_000, () => target.server.resume());
  await sleep(callAfterMs);
};

const outages: Fault[] = [
  {
    name: "F5",
    what: "held until 1.1 s on both connections, the held copies land after the answer",
    on: "acquire",
    expect: "unavailable",
    strike: heldOnBoth,
    watchMs: 2_500,
  },
  {
    name: "F6",
    what: "Redis unreachable for 3 s, asked at 0.3 s",
    on: "acquire",
    expect: "unavailable",
    strike: unreachable(300),
    watchMs: 5_500,
  },
  {
    name: "F6 back",
    what: "Redis unreachable for 3 s, asked at 2.6 s",
    on: "acquire",
    expect: "back in time",
    strike: unreachable(2_600),
    watchMs: 5_500,
  },
  {
    name: "F7",
    what: "SCRIPT FLUSH before each command, an extend among them",
    on: "acquire",
    expect: "acquired",
    ownServer: true,
    strike: (target) => target.proxy.waitBeforeEachRequest(() => send(target, "SCRIPT", "FLUSH")),
    watchMs: 3_000,
    holdMs: 2_200,
  },
  {
    name: "F8",
    what: "server paused for 2 s, asked at 0.3 s",
    on: "acquire",
    expect: "unavailable",
    ownServer: true,
    strike: paused(300),
    watchMs: 3_500,
  },
  {
    name: "F8 back",
    what: "server paused for 2 s, asked at 1.4 s",
    on: "acquire",
    expect: "back in time",
    ownServer: true,
    strike: paused(1_400),
    watchMs: 3_500,
  },
];

/** How long a server refuses; its own word, no imitation. */
const refusalMs = 800;
/** Nobody listens there. */
const noMaster = ["127.0.0.1", "1"] as const;

async function becomeReplica(target: FaultTarget, serveStaleData: "yes" | "no"): Promise<void> {
  await send(target, "CONFIG", "SET", "replica-serve-stale-data", serveStaleData);
  await send(target, "REPLICAOF", ...noMaster);
  target.later(refusalMs, () => send(target, "REPLICAOF", "NO", "ONE"));
}

const refusals: Fault[] = [
  {
    name: "F9 READONLY",
    what: "the server is a replica for 0.8 s",
    on: "acquire",
    expect: "refused",
    says: "READONLY",
    ownServer: true,
    strike: (target) => becomeReplica(target, "yes"),
    watchMs: 2_000,
  },
  {
    name: "F9 LOADING",
    what: "the server reads its data in for 0.8 s",
    on: "acquire",
    expect: "refused",
    says: "LOADING",
    ownServer: true,
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
    on: "acquire",
    expect: "refused",
    says: "OOM",
    ownServer: true,
    async strike(target) {
      await send(target, "CONFIG", "SET", "maxmemory", 1);
      target.later(refusalMs, () => send(target, "CONFIG", "SET", "maxmemory", 0));
    },
    watchMs: 2_000,
  },
  {
    name: "F9 NOPERM",
    what: "the user may not write for 0.8 s",
    on: "acquire",
    expect: "refused",
    says: "NOPERM",
    ownServer: true,
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
    on: "acquire",
    expect: "refused",
    says: "MASTERDOWN",
    ownServer: true,
    strike: (target) => becomeReplica(target, "no"),
    watchMs: 2_000,
  },
];

/** What can become of one command on its way; the connections that are opened later are healthy. */
const onTheWay: Pick<Fault, "name" | "what" | "strike">[] = [
  {
    name: "reply lost",
    what: "applied, replies lost, reset after 1.5 s",
    strike: onTheWire((proxy, isOurs) => proxy.loseReplyOnce(isOurs, { resetAfterMs: 1_500 })),
  },
  {
    name: "reset after",
    what: "applied, reset before the reply",
    strike: onTheWire((proxy, isOurs) => proxy.loseReplyOnce(isOurs, { resetAfterMs: 0 })),
  },
  {
    name: "reset before",
    what: "reset before Redis sees it",
    strike: onTheWire((proxy, isOurs) => proxy.resetBeforeOnce(isOurs)),
  },
  {
    name: "held",
    what: "held for 1 s on an open connection",
    strike: onTheWire((proxy, isOurs) => proxy.holdRequestOnce(isOurs, { releaseAfterMs: 1_000 })),
  },
];

export const faults: Fault[] = [
  ...onAcquire,
  ...outages,
  ...refusals,
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
