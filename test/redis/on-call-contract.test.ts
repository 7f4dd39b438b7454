import { isSeenAndFreed } from "../support/on-call-contract.ts";
import { onEveryRedisStore } from "./every-redis-store.ts";

onEveryRedisStore(isSeenAndFreed);
