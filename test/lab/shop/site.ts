import { setTimeout as sleep } from "node:timers/promises";
import { command } from "../../support/command.ts";
import { startMasters } from "../../support/masters.ts";
import { type RedisProxy, startProxy } from "../../support/proxy.ts";
import { type RedisServer, startServer } from "../../support/server-process.ts";
import { until } from "../../support/until.ts";
import type { Random } from "../simulation/time/random.ts";
import { now } from "./protocol.ts";

/** The Redis under a soak: its servers, each behind a proxy. */
export type Site = Awaited<ReturnType<typeof startSingle | typeof startCluster>>;

interface SiteNode {
  readonly server: RedisServer;
  readonly proxy: RedisProxy;
}

export async function startSingle(binary: string) {
  const node = await behindProxy(await startServer(binary));
  return {
    ...siteOf([node]),
    target: { kind: "single" as const, port: node.proxy.port },
    /** What one client has open when it has talked to every server. */
    connectionsOfClient: { atRest: 1, most: 1 },
    /** Whether a server may be started anew, without anything. */
    mayRestart: true,
  };
}

/** Three masters, which give out the ports of their proxies for their own. */
export async function startCluster(binary: string) {
  // A pause is no failure here: nobody could take over.
  const servers = await startMasters(binary, 3, ["--cluster-node-timeout", "15000"]);
  const nodes = await Promise.all(servers.map(behindProxy));
  const ports = nodes.map(({ proxy }) => proxy.port);
  for (const { server, proxy } of nodes) {
    // Else they would look for each other's bus behind the proxies.
    await command(server.port, "CONFIG", "SET", "cluster-announce-bus-port", `${server.busPort}`);
    await command(server.port, "CONFIG", "SET", "cluster-announce-port", proxy.port);
  }
  const isKnown = async ({ server }: SiteNode): Promise<boolean> => {
    const slots = (await command(server.port, "CLUSTER", "SLOTS")) as [
      number,
      number,
      [string, number],
    ][];
    return slots.length === 3 && slots.every(([, , [, port]]) => ports.includes(port));
  };
  await until(async () => (await Promise.all(nodes.map(isKnown))).every(Boolean), {
    what: "the nodes to know each other's proxies",
    boundMs: 30_000,
  });
  return {
    ...siteOf(nodes),
    target: { kind: "cluster" as const, ports },
    // One for a moment, that asks who serves which slots.
    connectionsOfClient: { atRest: nodes.length, most: nodes.length + 1 },
    mayRestart: false,
  };
}

async function behindProxy(server: RedisServer): Promise<SiteNode> {
  return { server, proxy: await startProxy(server.port) };
}

function siteOf(nodes: readonly SiteNode[]) {
  const sum = async (of: (node: SiteNode) => Promise<number>): Promise<number> =>
    (await Promise.all(nodes.map(of))).reduce((total, count) => total + count, 0);
  return {
    nodes,
    keys: () => sum(async ({ server }) => Number(await command(server.port, "DBSIZE"))),
    /** Through the proxies, to all its servers. */
    connections: () => sum(connectionsOf),
    /** Forgets what the proxies have seen. */
    forget() {
      for (const { proxy } of nodes) (proxy.commands as string[][]).length = 0;
    },
    async stop() {
      await Promise.all(nodes.map(({ proxy }) => proxy.stop()));
      await Promise.all(nodes.map(({ server }) => server.stop()));
    },
  };
}

async function connectionsOf({ server }: SiteNode): Promise<number> {
  const list = String(await command(server.port, "CLIENT", "LIST"));
  // One of them is ours.
  return list.trim().split("\n").length - 1;
}

/** Random faults, one after another, each healed before the next. */
export class Trouble {
  readonly counts: Record<string, number> = {};
  /** When the server lost everything. */
  readonly restarts: { readonly from: number; readonly until: number }[] = [];
  readonly #site: Site;
  readonly #random: Random;

  constructor(site: Site, random: Random) {
    this.#site = site;
    this.#random = random;
  }

  async goOnUntil(end: number): Promise<void> {
    const { mayRestart, nodes } = this.#site;
    const possible = Object.entries(this.#faults).filter(
      ([name]) => name !== "restart" || mayRestart,
    );
    while (now() < end) {
      await sleep(this.#random.between(100, 2_000));
      const node = this.#random.pick(nodes);
      const [name, fault] = this.#random.pick(possible);
      this.counts[name] = (this.counts[name] ?? 0) + 1;
      await fault(node);
    }
  }

  readonly #faults: Record<string, (node: SiteNode) => Promise<unknown>> = {
    reset: async ({ proxy }) => proxy.resetAll(),
    "reply lost": ({ proxy }) => loseReply(proxy, {}),
    "reply lost, reset": ({ proxy }) =>
      loseReply(proxy, { resetAfterMs: this.#random.between(0, 500) }),
    "requests lost": async ({ proxy }) => {
      proxy.swallowRequests(true);
      await this.#aWhile();
      proxy.swallowRequests(false);
      // Otherwise the connections stay silent, and the client has to find out by itself.
      if (this.#random.next() < 0.5) proxy.resetAll();
    },
    "requests late": async ({ proxy }) => {
      proxy.holdRequests();
      await this.#aWhile();
      proxy.releaseHeld();
    },
    "replies late": async ({ proxy }) => {
      proxy.holdReplies();
      await this.#aWhile();
      proxy.releaseHeld();
    },
    refused: async ({ proxy }) => {
      await proxy.refuse(true);
      proxy.resetAll();
      await this.#aWhile();
      await proxy.refuse(false);
    },
    silence: async ({ server }) => {
      server.pause();
      await this.#aWhile();
      server.resume();
    },
    restart: async ({ server }) => {
      const from = now();
      await server.kill();
      await this.#aWhile();
      await server.restart();
      this.restarts.push({ from, until: now() });
    },
  };

  async #aWhile(): Promise<void> {
    await sleep(this.#random.between(50, 3_000));
  }
}

async function loseReply(proxy: RedisProxy, options: { resetAfterMs?: number }): Promise<void> {
  const lost = proxy.loseReplyOnce(([name]) => name?.toLowerCase() === "eval", options);
  // Without traffic nothing is lost, and the next command will do.
  await Promise.race([lost, sleep(2_000)]);
}
