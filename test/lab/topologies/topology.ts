import { setTimeout as sleep } from "node:timers/promises";
import { command } from "../../support/command.ts";
import type { RedisServer } from "../../support/server-process.ts";
import { until } from "../../support/until.ts";
import type { Target } from "../shop/protocol.ts";

/** One Redis server of several, and whether it can be talked to. */
export class Node {
  readonly server: RedisServer;
  /** Counts its starts: a server that was started again knows nothing of before. */
  life = 1;
  isAway = false;

  constructor(server: RedisServer) {
    this.server = server;
  }

  get port(): number {
    return this.server.port;
  }

  async kill(): Promise<void> {
    this.isAway = true;
    await this.server.kill();
  }

  async restart(): Promise<void> {
    await this.server.restart();
    this.life++;
    this.isAway = false;
  }

  pause(): void {
    this.isAway = true;
    this.server.pause();
  }

  resume(): void {
    this.server.resume();
    this.isAway = false;
  }

  /** A server that changes its role closes connections, so what is asked then is asked again. */
  async ask(name: string, ...args: (string | number)[]): Promise<unknown> {
    for (let left = 20; ; left--) {
      try {
        return await command(this.port, name, ...args);
      } catch (error) {
        const isAnswer = error instanceof Error && error.name === "ReplyError";
        if (isAnswer || left === 0) throw error;
        await sleep(50);
      }
    }
  }
}

/** Several servers that keep the locks together. */
export interface Topology {
  readonly name: string;
  readonly target: Target;
  readonly nodes: readonly Node[];
  /** Where writes to this key go, in the view of the servers that can be talked to. */
  masterOf(key: string): Promise<Node>;
  masters(): Promise<Node[]>;
  replicasOf(master: Node): Promise<Node[]>;
  /** Orders a failover as an operator does, and resolves when it has been accepted. */
  failOver(master: Node): Promise<void>;
  /** Resolves when every server is there, has its role, and every replica is in step. */
  whole(): Promise<void>;
  stop(): Promise<void>;
}

/** A replica that is connected to its master and has its data. */
export async function isInStep(node: Node): Promise<boolean> {
  const info = String(await node.ask("INFO", "replication"));
  return info.includes("role:slave") && info.includes("master_link_status:up");
}

/** What a fault can do to the servers. */
interface FaultTarget {
  readonly topology: Topology;
  /** The master that it strikes. */
  readonly victim: Node;
  /** Resolves when orders go through again on every service. */
  ordersFlow(): Promise<void>;
  /** After a restart somebody has to listen again. */
  listenAgain(node: Node): Promise<void>;
}

export interface Fault {
  readonly name: string;
  /** Whether customers may notice. */
  readonly isOutage: boolean;
  /** Strikes, and mends what it broke. */
  run(target: FaultTarget): Promise<void>;
}

async function kill({ topology, victim, ordersFlow, listenAgain }: FaultTarget): Promise<void> {
  await victim.kill();
  await ordersFlow();
  await victim.restart();
  await listenAgain(victim);
  await topology.whole();
}

async function failOver({ topology, victim }: FaultTarget): Promise<void> {
  await topology.failOver(victim);
  await until(async () => !(await topology.masters()).includes(victim), {
    what: "another master",
    boundMs: 30_000,
  });
  await topology.whole();
}

async function pause({ topology, victim, ordersFlow }: FaultTarget): Promise<void> {
  victim.pause();
  await ordersFlow();
  // It still takes itself for the master when it wakes.
  victim.resume();
  await topology.whole();
}

async function cutReplica({ topology, victim }: FaultTarget): Promise<void> {
  const [replica] = (await topology.replicasOf(victim)) as [Node];
  replica.pause();
  await victim.ask("CLIENT", "KILL", "TYPE", "replica");
  await sleep(2_000);
  replica.resume();
  await topology.whole();
}

export const faults: readonly Fault[] = [
  { name: "the master is killed, and started again later", isOutage: true, run: kill },
  { name: "a failover is ordered", isOutage: true, run: failOver },
  { name: "the master is paused beyond the failover", isOutage: true, run: pause },
  { name: "a replica is cut off for 2 s", isOutage: false, run: cutReplica },
];
