import { slotOf } from "../../../src/stores/redis/clients/slots.ts";
import { startServer } from "../../support/server-process.ts";
import { until } from "../../support/until.ts";
import { isInStep, Node, type Topology } from "./topology.ts";

const masterCount = 3;
const slots = 16_384;

/** One range of slots and who serves it, the master first. */
interface Range {
  readonly first: number;
  readonly last: number;
  readonly nodes: readonly Node[];
}

const args = [
  ["--cluster-node-timeout", "1000"],
  // A replica may take over however long it has been cut off: what it lacks is what is counted.
  ["--cluster-replica-validity-factor", "0"],
  ["--repl-diskless-sync-delay", "0"],
  ["--repl-ping-replica-period", "1"],
].flat();

/**
 * A Cluster of three masters with a replica each. Resolves when all of them agree.
 *
 * @param options for each of the six servers.
 */
export async function startReplicatedCluster(
  binary: string,
  options: readonly string[] = [],
): Promise<Topology> {
  const own = { cluster: true, args: [...args, ...options] };
  const servers = await Promise.all(
    Array.from({ length: 2 * masterCount }, () => startServer(binary, own)),
  );
  const nodes = servers.map((server) => new Node(server));
  const byPort = (port: number) => nodes.find((node) => node.port === port) as Node;

  async function ranges(): Promise<Range[]> {
    const reachable = nodes.find(({ isAway }) => !isAway);
    if (reachable === undefined) throw new Error("No node of the Cluster can be talked to.");
    const reply = (await reachable.ask("CLUSTER", "SLOTS")) as [
      number,
      number,
      ...[string, number][],
    ][];
    return reply.map(([first, last, ...served]) => {
      return { first, last, nodes: served.map(([, port]) => byPort(port)) };
    });
  }

  const topology: Topology = {
    name: "Cluster",
    target: { kind: "cluster", ports: nodes.map(({ port }) => port) },
    nodes,
    async masterOf(key) {
      const slot = slotOf(key);
      const range = (await ranges()).find(({ first, last }) => first <= slot && slot <= last);
      return range?.nodes[0] as Node;
    },
    async masters() {
      return [...new Set((await ranges()).map((range) => range.nodes[0] as Node))];
    },
    async replicasOf(master) {
      const range = (await ranges()).find((one) => one.nodes[0] === master);
      return [...(range?.nodes ?? [])].slice(1);
    },
    async failOver(master) {
      const [replica] = await topology.replicasOf(master);
      await replica?.ask("CLUSTER", "FAILOVER");
    },
    async whole() {
      const isWhole = async (node: Node): Promise<boolean> => {
        const info = String(await node.ask("CLUSTER", "INFO"));
        const agreed = ["cluster_state:ok", `cluster_slots_ok:${slots}`, "cluster_known_nodes:6"];
        if (!agreed.every((line) => info.includes(line))) return false;
        const [role] = (await node.ask("ROLE")) as [string];
        return role === "slave" ? await isInStep(node) : true;
      };
      await until(
        async () => {
          const seen = await Promise.all(nodes.map(isWhole));
          if (seen.includes(false)) return false;
          const now = await ranges();
          return now.length === masterCount && now.every((range) => range.nodes.length === 2);
        },
        { what: "the Cluster to be whole", boundMs: 40_000, everyMs: 50 },
      );
    },
    async stop() {
      await Promise.all(servers.map((server) => server.stop()));
    },
  };
  try {
    await join(nodes);
    await topology.whole();
  } catch (error) {
    await topology.stop();
    throw error;
  }
  return topology;
}

async function join(nodes: readonly Node[]): Promise<void> {
  const masters = nodes.slice(0, masterCount);
  for (const [i, master] of masters.entries()) {
    // Different epochs from the start: otherwise the nodes have to settle the collision first.
    await master.ask("CLUSTER", "SET-CONFIG-EPOCH", i + 1);
    const first = Math.floor((i * slots) / masterCount);
    const last = Math.floor(((i + 1) * slots) / masterCount) - 1;
    await master.ask("CLUSTER", "ADDSLOTSRANGE", first, last);
  }
  const [introducer, ...others] = nodes as [Node, ...Node[]];
  for (const { server } of others) {
    await introducer.ask("CLUSTER", "MEET", "127.0.0.1", server.port, server.busPort as number);
  }
  const ids = await Promise.all(masters.map((master) => master.ask("CLUSTER", "MYID")));
  await Promise.all(
    nodes.slice(masterCount).map((replica, i) =>
      until(
        async () => {
          // Refused until the replica has heard of its master.
          return await replica.ask("CLUSTER", "REPLICATE", String(ids[i])).catch(() => undefined);
        },
        { what: "a replica to know its master", everyMs: 25 },
      ),
    ),
  );
}
