import { clusterClients, redisClients } from "../support/clients.ts";
import { carriesALock } from "../support/lock-contract.ts";
import { onRedisStores } from "./every-redis-store.ts";

onRedisStores(redisClients, clusterClients, carriesALock);
