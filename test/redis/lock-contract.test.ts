import { carriesALock } from "../support/lock-contract.ts";
import { onEveryRedisStore } from "./every-redis-store.ts";

onEveryRedisStore(carriesALock);
