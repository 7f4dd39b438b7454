import { command } from "../test/support/command.ts";
import { type RedisServer, startServer } from "../test/support/server-process.ts";
import { until } from "../test/support/until.ts";

const slots = 16_384;

/** A cluster of so many masters without replicas, which share the slots evenly. */
export async function startMasters(binary: string, masters: number): Promise<RedisServer[]> {
  // A node that has met no other does not know its own address, and clients are told none.
  const args = ["--cluster-announce-ip", "127.0.0.1"];
  const nodes = await Promise.all(
    Array.from({ length: masters }, () => startServer(binary, { cluster: true, args })),
  );
  for (const [index, { port }] of nodes.entries()) {
    // Different epochs from the start: otherwise the nodes have to settle the collision first.
    await command(port, "CLUSTER", "SET-CONFIG-EPOCH", index + 1);
    const first = Math.floor((index * slots) / masters);
    const last = Math.floor(((index + 1) * slots) / masters) - 1;
    await command(port, "CLUSTER", "ADDSLOTSRANGE", first, last);
    const introducer = nodes[0] as RedisServer;
    if (index === 0) continue;
    await command(port, "CLUSTER", "MEET", "127.0.0.1", introducer.port, introducer.busPort ?? 0);
  }
  await Promise.all(nodes.map(({ port }) => agreed(port, masters)));
  return nodes;
}

function agreed(port: number, masters: number): Promise<boolean> {
  return until(
    async () => {
      const info = String(await command(port, "CLUSTER", "INFO"));
      return [`slots_ok:${slots}`, "state:ok", `known_nodes:${masters}`].every((fact) =>
        info.includes(`cluster_${fact}`),
      );
    },
    { what: `the cluster node on port ${port} to see the whole cluster`, everyMs: 25 },
  );
}
