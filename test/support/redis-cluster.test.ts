import { afterAll, afterEach, beforeAll, describe, expect, test } from "vitest";
import { closeClients, ioredisClusters } from "./clients.ts";
import { freshUser } from "./ids.ts";
import { type RedisCluster, startCluster } from "./redis-cluster.ts";

let cluster: RedisCluster;
beforeAll(async () => {
  cluster = await startCluster();
});
afterEach(closeClients);
afterAll(() => cluster?.stop());

describe.each(ioredisClusters)("$name", ({ connect }) => {
  test("keys in the slots of all three masters are written and read", async () => {
    const client = connect(cluster.ports);
    for (const user of Array.from({ length: 30 }, freshUser)) {
      await client.call("set", user, "1");
      expect(await client.call("get", user)).toBe("1");
    }
    expect(client.nodes("master")).toHaveLength(3);
  });
});
