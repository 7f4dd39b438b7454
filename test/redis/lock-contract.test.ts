// @slow: begins first.

import { clusterClients, isNodeRedis, redisClients } from "../support/clients.ts";
import { carriesALock } from "../support/lock-contract.ts";
import { isSeenAndFreed } from "../support/on-call-contract.ts";
import { runsOnce } from "../support/once-call.ts";
import { onRedisStores } from "./every-redis-store.ts";

// Each library once: what differs from client to client is in the contract of the store.
onRedisStores(
  redisClients.filter(({ name }) => !isNodeRedis(name)),
  clusterClients.filter(({ name }) => isNodeRedis(name)),
  carriesALock,
  runsOnce,
  isSeenAndFreed,
);
