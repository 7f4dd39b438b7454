import { createHash, randomUUID } from "node:crypto";
import { createClient, createCluster } from "redis";
import { deleteIfMine, type Locker, notTaken, ttlMs } from "./locker.ts";

/** What the plain lock calls, of a client or a Cluster. */
type NodeRedis = Pick<ReturnType<typeof createClient>, "set" | "evalSha">;

interface Hold {
  readonly key: string;
  readonly ownerId: string;
}

/** Connected, with the scripts of `openPlainNodeRedis` on every server. */
export async function connectNodeRedis(kind: string, ports: readonly number[]): Promise<NodeRedis> {
  const urls = ports.map((port) => `redis://127.0.0.1:${port}`);
  const client =
    kind === "redis"
      ? createClient({ url: urls[0] as string })
      : createCluster({ rootNodes: urls.map((url) => ({ url })) });
  client.on("error", () => {});
  await client.connect();
  for (const url of urls) {
    const node = await createClient({ url }).connect();
    await node.scriptLoad(deleteIfMine);
    node.destroy();
  }
  return client as NodeRedis;
}

const digest = createHash("sha1").update(deleteIfMine).digest("hex");

/** What one writes with node-redis and without a library. Its own time-out of 5 s stays on. */
export function openPlainNodeRedis(client: NodeRedis): Locker<Hold> {
  return {
    async acquire(user) {
      const key = `lock:submit:${user}`;
      const ownerId = randomUUID();
      const options = { condition: "NX", expiration: { type: "PX", value: ttlMs } } as const;
      if ((await client.set(key, ownerId, options)) !== "OK") throw notTaken(user);
      return { key, ownerId };
    },
    release: ({ key, ownerId }) => client.evalSha(digest, { keys: [key], arguments: [ownerId] }),
  };
}
