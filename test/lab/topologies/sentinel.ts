import { mkdtempSync, rmSync, writeFileSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { Program } from "../../support/child.ts";
import { command } from "../../support/command.ts";
import { freePort } from "../../support/free-port.ts";
import { answersPing, startServer } from "../../support/server-process.ts";
import { until } from "../../support/until.ts";
import { isInStep, Node, type Topology } from "./topology.ts";

const masterName = "shop";

interface Sentinel {
  readonly port: number;
  ask(...words: (string | number)[]): Promise<unknown>;
  stop(): Promise<void>;
}

/**
 * A master, two replicas, and three sentinels that watch them. Resolves when all of them agree.
 *
 * @param options for each of the three servers.
 */
export async function startSentinels(
  binary: string,
  options: readonly string[] = [],
): Promise<Topology> {
  const fast = ["--repl-diskless-sync-delay", "0", "--repl-ping-replica-period", "1", ...options];
  const master = await startServer(binary, { args: fast });
  const args = [...fast, "--replicaof", `127.0.0.1 ${master.port}`];
  const replicas = await Promise.all([1, 2].map(() => startServer(binary, { args })));
  const servers = [master, ...replicas];
  const nodes = servers.map((server) => new Node(server));
  const sentinels = await Promise.all([1, 2, 3].map(() => startSentinel(binary, master.port)));
  const ask = (...words: (string | number)[]) => (sentinels[0] as Sentinel).ask(...words);

  async function masterNow(): Promise<Node> {
    const [, port] = (await ask("get-master-addr-by-name", masterName)) as [string, string];
    return nodes.find((node) => node.port === Number(port)) as Node;
  }

  async function isWhole(): Promise<boolean> {
    const current = await masterNow();
    for (const sentinel of sentinels) {
      const [, port] = (await sentinel.ask("get-master-addr-by-name", masterName)) as string[];
      const state = fields(await sentinel.ask("master", masterName));
      const agrees =
        Number(port) === current.port &&
        state.get("flags") === "master" &&
        state.get("num-slaves") === "2" &&
        state.get("num-other-sentinels") === "2";
      if (!agrees) return false;
      // A client does not learn of a Sentinel to which this one is not connected yet.
      for (const [what, flags] of [
        ["replicas", "slave"],
        ["sentinels", "sentinel"],
      ] as const) {
        const seen = (await sentinel.ask(what, masterName)) as unknown[];
        // Valkey 9 keeps what a Sentinel has said of an earlier master.
        const now = (each: unknown) => fields(each).get("flags")?.replace(",master_down", "");
        if (!seen.every((each) => now(each) === flags)) return false;
      }
    }
    const others = nodes.filter((node) => node !== current);
    const inStep = await Promise.all(others.map(isInStep));
    const info = String(await current.ask("INFO", "replication"));
    return !inStep.includes(false) && info.includes("connected_slaves:2");
  }

  const topology: Topology = {
    name: "Sentinel",
    target: { kind: "sentinel", ports: sentinels.map(({ port }) => port), name: masterName },
    nodes,
    masterOf: masterNow,
    masters: async () => [await masterNow()],
    replicasOf: (of) => Promise.resolve(nodes.filter((node) => node !== of)),
    async failOver() {
      // Refused while the last failover is not over, and while no replica is known to be good.
      const order = async () => (await ask("failover", masterName).catch(() => "")) === "OK";
      await until(order, { what: "the sentinels to accept a failover", everyMs: 100 });
    },
    async whole() {
      await until(isWhole, { what: "the trio to be whole", boundMs: 40_000, everyMs: 50 });
    },
    async stop() {
      await Promise.all(sentinels.map((sentinel) => sentinel.stop()));
      await Promise.all(servers.map((server) => server.stop()));
    },
  };
  try {
    await topology.whole();
    // The default: a replaced master that comes back, or was never away, learns of it after four of
    // them, 8 s.
    for (const { ask } of sentinels) await ask("DEBUG", "PUBLISH-PERIOD", 2_000);
  } catch (error) {
    await topology.stop();
    throw error;
  }
  return topology;
}

function fields(reply: unknown): Map<string, string> {
  const list = reply as string[];
  const all = new Map<string, string>();
  for (let i = 0; i < list.length; i += 2) all.set(list[i] as string, list[i + 1] as string);
  return all;
}

async function startSentinel(binary: string, masterPort: number): Promise<Sentinel> {
  const dir = mkdtempSync(join(tmpdir(), "submit-lock-sentinel-"));
  const remove = () => rmSync(dir, { recursive: true, force: true });
  for (let attempt = 1; ; attempt++) {
    const port = await freePort();
    const config = join(dir, "sentinel.conf");
    writeFileSync(
      config,
      `port ${port}
bind 127.0.0.1
dir ${dir}
sentinel monitor ${masterName} 127.0.0.1 ${masterPort} 2
sentinel down-after-milliseconds ${masterName} 1000
sentinel failover-timeout ${masterName} 3000
`,
    );
    const sentinel = new Program(binary, [config, "--sentinel"]);
    const answers = sentinel.until(() => answersPing(port), `to answer on port ${port}`);
    await answers.catch(() => {});
    // A stranger may have answered in its place, but then it cannot have bound the port itself.
    const up = !sentinel.hasEnded;
    if (!up && attempt === 10) {
      remove();
      throw new Error("No sentinel could be started.");
    }
    if (!up) continue;
    const ask = (...words: (string | number)[]) => command(port, "SENTINEL", ...words);
    // How soon they learn of each other and of a server that has come back; ten times as often as
    // by default. How soon they see that a server is away is set above.
    await ask("DEBUG", "INFO-PERIOD", 1_000, "ASK-PERIOD", 200, "PUBLISH-PERIOD", 200);
    return {
      port,
      ask,
      async stop() {
        sentinel.kill();
        await sentinel.ended;
        remove();
      },
    };
  }
}
