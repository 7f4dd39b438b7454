import { afterAll, beforeAll, expect, test } from "vitest";
import { slotOf } from "../../src/stores/redis/clients/slots.ts";
import { command } from "../support/command.ts";
import { type RedisServer, startRedis } from "../support/redis-server.ts";

let node: RedisServer;

beforeAll(async () => {
  node = await startRedis({ args: ["--cluster-enabled", "yes"] });
});

afterAll(() => node.stop());

test.each([
  "lock:submit:42",
  "",
  "{tag}lock:submit:42",
  "app:{tag}:lock:submit:42",
  "{}lock",
  "}{",
  "a}b{c}d{e}",
  "{unclosed",
  "schlüssel:€",
  ...Array.from({ length: 100 }, (_, i) => `lock:submit:user-${i * 7919}`),
])("the slot of %s is the one that Redis computes", async (key) => {
  expect(slotOf(key)).toBe(Number(await command(node.port, "CLUSTER", "KEYSLOT", key)));
});
