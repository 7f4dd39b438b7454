import { inject } from "vitest";
import { startMasters } from "./masters.ts";
import type { RedisServer } from "./server-process.ts";

export interface RedisCluster {
  readonly nodes: readonly RedisServer[];
  readonly ports: readonly number[];
  stop(): Promise<void>;
}

/** Three masters without replicas that share the slots evenly. Resolves when all of them agree. */
export async function startCluster(options: readonly string[] = []): Promise<RedisCluster> {
  const binary = inject("redisServerBinary");
  const nodes = await startMasters(binary, 3, ["--cluster-node-timeout", "2000", ...options]);
  return {
    nodes,
    ports: nodes.map((node) => node.port),
    stop: async () => {
      await Promise.all(nodes.map((node) => node.stop()));
    },
  };
}
