import { clusterClients, redisClients } from "../support/clients.ts";
import { carriesALock } from "../support/lock-contract.ts";
import { isSeenAndFreed } from "../support/on-call-contract.ts";
import { runsOnce } from "../support/once-call.ts";
import { onRedisStores } from "./every-redis-store.ts";

onRedisStores(redisClients, clusterClients, carriesALock, runsOnce, isSeenAndFreed);
