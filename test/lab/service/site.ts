import { setTimeout as sleep } from "node:timers/promises";
import { command } from "../../support/command.ts";
import { startMasters } from "../../support/masters.ts";
import { type RedisProxy, startProxy } from "../../support/proxy.ts";
import { type RedisServer, startServer } from "../../support/server-process.ts";
import { until } from "../../support/until.ts";
import type { Random } from "../simulation/time/random.ts";
import { now, type Target } from "./protocol.ts";

/** The Redis under a soak: its servers, each behind a proxy. */
export interface Site {
  readonly target: Target;
  readonly nodes: readonly SiteNode[];
  readonly connectionsOfClient: ConnectionsOfClient;
  /** Whether a server may be started anew, without anything. */
  readonly mayRestart: boolean;
  keys(): Promise<number>;
  /** Through the proxies, to all its servers. */
  connections(): Promise<number>;
  /** Forgets what the proxies have seen. */
  forget(): void;
  stop(): Promise<void>;
}

/** What one client has open when it has talked to every server. */
interface ConnectionsOfClient {
  readonly atRest: number;
  readonly most: number;
}

interface SiteNode {
  readonly server: RedisServer;
  readonly proxy: RedisProxy;
}

export async function startSingle(binary: string): Promise<Site> {
  const node = await behindProxy(await startServer(binary));
  return {
    ...siteOf([node]),
    target: { kind: "single", port: node.proxy.port },
    connectionsOfClient: { atRest: 1, most: 1 },
    mayRestart: true,
  };
}

/** Three masters, which give out the ports of their proxies for their own. */
export async function startCluster(binary: string): Promise<Site> {
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
    target: { kind: "cluster", ports },
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
    connections: () => sum(connectionsOf),
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
  /** The node that has the next fault. */
  #node: SiteNode;

  constructor(site: Site, random: Random) {
    this.#site = site;
    this.#random = random;
    this.#node = random.pick(site.nodes);
  }

  get #proxy(): RedisProxy {
    return this.#node.proxy;
  }

  get #server(): RedisServer {
    return this.#node.server;
  }

  async goOnUntil(end: number): Promise<void> {
    while (now() < end) {
      await sleep(this.#random.between(100, 2_000));
      this.#node = this.#random.pick(this.#site.nodes);
      const [name, fault] = this.#random.pick(this.#possible);
      this.counts[name] = (this.counts[name] ?? 0) + 1;
      await fault();
    }
  }

  get #possible(): [string, () => Promise<unknown>][] {
    const { mayRestart } = this.#site;
    return Object.entries(this.#faults).filter(([name]) => name !== "restart" || mayRestart);
  }

  readonly #faults: Record<string, () => Promise<unknown>> = {
    reset: async () => this.#proxy.resetAll(),
    "reply lost": () => this.#loseReply({}),
    "reply lost, reset": () => this.#loseReply({ resetAfterMs: this.#random.between(0, 500) }),
    "requests lost": async () => {
      this.#proxy.swallowRequests(true);
      await this.#aWhile();
      this.#proxy.swallowRequests(false);
      // Otherwise the connections stay silent, and the client has to find out by itself.
      if (this.#random.next() < 0.5) this.#proxy.resetAll();
    },
    "requests late": async () => {
      this.#proxy.holdRequests();
      await this.#aWhile();
      this.#proxy.releaseHeld();
    },
    "replies late": async () => {
      this.#proxy.holdReplies();
      await this.#aWhile();
      this.#proxy.releaseHeld();
    },
    refused: async () => {
      await this.#proxy.refuse(true);
      this.#proxy.resetAll();
      await this.#aWhile();
      await this.#proxy.refuse(false);
    },
    silence: async () => {
      this.#server.pause();
      await this.#aWhile();
      this.#server.resume();
    },
    restart: async () => {
      const from = now();
      await this.#server.kill();
      await this.#aWhile();
      await this.#server.restart();
      this.restarts.push({ from, until: now() });
    },
  };

  async #loseReply(options: { resetAfterMs?: number }): Promise<void> {
    const lost = this.#proxy.loseReplyOnce(([name]) => name?.toLowerCase() === "eval", options);
    // Without traffic nothing is lost, and the next command will do.
    await Promise.race([lost, sleep(2_000)]);
  }

  async #aWhile(): Promise<void> {
    await sleep(this.#random.between(50, 3_000));
  }
}
