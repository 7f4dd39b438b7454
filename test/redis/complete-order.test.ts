import { afterAll, afterEach, expect, test } from "vitest";
import { RedisStore } from "../../src/index.ts";
import { asking } from "../support/asking.ts";
import {
  type AnyCluster,
  type AnyRedis,
  closeClients,
  ioredisClients,
  ioredisClusters,
  untilReady,
} from "../support/clients.ts";
import { commandOf } from "../support/locks.ts";
import { startCluster } from "../support/redis-cluster.ts";
import { sharedRedisPort } from "../support/redis-server.ts";
import { scriptCallsOf } from "../support/script-calls.ts";
import { onceOf, recordOf } from "../support/submissions.ts";

const cluster = await startCluster();
afterAll(() => cluster.stop());
afterEach(closeClients);

type Connect = (options: { enableAutoPipelining: boolean }) => AnyRedis | AnyCluster;

const clients: [name: string, connect: Connect][] = [
  ...ioredisClients.map(({ name, connect }): [string, Connect] => [
    name,
    (options) => connect(sharedRedisPort(), options),
  ]),
  ...ioredisClusters.map(({ name, connect }): [string, Connect] => [
    name,
    (options) => connect(cluster.ports, options),
  ]),
];

/** Whether the complete is its request's second copy, which goes in two steps on a Cluster. */
const ways = [
  { autoPipelining: false, isAgain: false, ackReplicas: undefined },
  { autoPipelining: true, isAgain: false, ackReplicas: undefined },
  { autoPipelining: false, isAgain: true, ackReplicas: undefined },
  { autoPipelining: true, isAgain: true, ackReplicas: undefined },
  { autoPipelining: false, isAgain: false, ackReplicas: 1 },
];

test.each(clients.flatMap(([name, connect]) => ways.map((way) => ({ name, connect, ...way }))))(
  "a complete is handed to the client within its turn and ahead of later acquires: $name, autopipelining $autoPipelining, second copy $isAgain, replicas $ackReplicas",
  async ({ connect, autoPipelining, isAgain, ackReplicas }) => {
    const client = await untilReady(connect({ enableAutoPipelining: autoPipelining }));
    const plain = asking(new RedisStore(client));
    const other = asking(new RedisStore(client));
    const store = ackReplicas ? asking(new RedisStore(client, { ackReplicas })) : plain;
    const mine = onceOf();
    expect(await plain.acquire(mine).reply).toMatchObject({ kind: "taken" });
    const plan = { record: recordOf(mine), expiresAtMs: Date.now() + 60_000 };
    const calls = scriptCallsOf(client);
    const records = () =>
      calls.flatMap(({ argv }) => argv.filter((arg) => arg === plan.record)).length;

    // While something is in flight, acquires and releases wait for the end of their turn.
    const busy = plain.acquire(commandOf()).reply;
    await endOfTicks();
    if (isAgain) store.complete(mine, plan);
    store.complete(mine, plan);
    const rivals = [plain, other].map((by) => by.acquire(onceOf({ ...mine, ownerId: "rival" })));
    await endOfTicks();
    expect(records()).toBe(isAgain ? 2 : 1);
    for (const { reply } of rivals) expect(await reply).toMatchObject({ kind: "completed" });
    await busy;
  },
);

/** What was asked for by now has run, and no answer of a server has been read. */
async function endOfTicks(): Promise<void> {
  for (let tick = 0; tick < 3; tick++) await new Promise<void>(process.nextTick);
}
