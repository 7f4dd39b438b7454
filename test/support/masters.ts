import { command } from "./command.ts";
import { type RedisServer, startServer } from "./server-process.ts";
import { until } from "./until.ts";

const SLOTS = 16_384;

/** A cluster of so many masters without replicas, which share the slots evenly. Resolves when all of them agree. */
export async function startMasters(
  binary: string,
  masters: number,
  args: readonly string[],
): Promise<RedisServer[]> {
  const nodes = await Promise.all(
    Array.from({ length: masters }, () => startServer(binary, { cluster: true, args })),
  );
  try {
    await join(nodes);
    await Promise.all(nodes.map(({ port }) => agreed(port, masters)));
  } catch (error) {
    await Promise.all(nodes.map((node) => node.stop()));
    throw error;
  }
  return nodes;
}

async function join(nodes: readonly RedisServer[]): Promise<void> {
  for (const [i, { port }] of nodes.entries()) {
    // Different epochs from the start: otherwise the nodes have to settle the collision first.
    await command(port, "CLUSTER", "SET-CONFIG-EPOCH", i + 1);
    const first = Math.floor((i * SLOTS) / nodes.length);
    const last = Math.floor(((i + 1) * SLOTS) / nodes.length) - 1;
    await command(port, "CLUSTER", "ADDSLOTSRANGE", first, last);
  }
  const [introducer, ...others] = nodes as [RedisServer, ...RedisServer[]];
  for (const { port, busPort } of others) {
    await command(introducer.port, "CLUSTER", "MEET", "127.0.0.1", port, busPort as number);
  }
}

function agreed(port: number, masters: number): Promise<boolean> {
  return until(
    async () => {
      const info = String(await command(port, "CLUSTER", "INFO"));
      return [`slots_ok:${SLOTS}`, "state:ok", `known_nodes:${masters}`].every((fact) =>
        info.includes(`cluster_${fact}`),
      );
    },
    { what: `the cluster node on port ${port} to see the whole cluster`, everyMs: 25 },
  );
}
