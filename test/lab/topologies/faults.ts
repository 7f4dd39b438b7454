import { setTimeout as sleep } from "node:timers/promises";
import { until } from "../../support/until.ts";
import type { Node, Topology } from "./topology.ts";

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
