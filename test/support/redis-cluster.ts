import { inject } from "vitest";
import { command } from "./command.ts";
import { type RedisServer, startServer } from "./server-process.ts";
import { until } from "./until.ts";

export interface RedisCluster {
  readonly nodes: readonly RedisServer[];
  readonly ports: readonly number[];
  stop(): Promise<void>;
}

const SLOTS = 16_384;
const MASTERS = 3;

/** Three masters without replicas that share the slots evenly. Resolves when all of them agree. */
export async function startCluster(): Promise<RedisCluster> {
  const binary = inject("redisServerBinary");
  const args = ["--cluster-node-timeout", "2000"];
  const nodes = await Promise.all(
    Array.from({ length: MASTERS }, () => startServer(binary, { cluster: true, args })),
  );
  const ports = nodes.map((node) => node.port);
  const stop = async (): Promise<void> => {
    await Promise.all(nodes.map((node) => node.stop()));
  };
  try {
    await join(nodes);
    await Promise.all(ports.map(agreed));
  } catch (error) {
    await stop();
    throw error;
  }
  return { nodes, ports, stop };
}

async function join(nodes: readonly RedisServer[]): Promise<void> {
  for (const [i, { port }] of nodes.entries()) {
    // Different epochs from the start: otherwise the nodes have to settle the collision first.
    await command(port, "CLUSTER", "SET-CONFIG-EPOCH", i + 1);
    const first = Math.floor((i * SLOTS) / MASTERS);
    const last = Math.floor(((i + 1) * SLOTS) / MASTERS) - 1;
    await command(port, "CLUSTER", "ADDSLOTSRANGE", first, last);
  }
  const [introducer, ...others] = nodes as [RedisServer, ...RedisServer[]];
  for (const { port, busPort } of others) {
    await command(introducer.port, "CLUSTER", "MEET", "127.0.0.1", port, busPort as number);
  }
}

function agreed(port: number): Promise<boolean> {
  return until(
    async () => {
      const info = String(await command(port, "CLUSTER", "INFO"));
      const whole = info.includes(`cluster_slots_ok:${SLOTS}`);
      return (
        whole &&
        info.includes("cluster_state:ok") &&
        info.includes(`cluster_known_nodes:${MASTERS}`)
      );
    },
    { what: `the cluster node on port ${port} to see the whole cluster`, everyMs: 25 },
  );
}
