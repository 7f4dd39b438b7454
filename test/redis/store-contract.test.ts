// @slow: begins first.

import { everyClusterClient, everyRedisClient } from "../support/clients.ts";
import { keepsAnswers } from "../support/once-contract.ts";
import { keepsTheContract } from "../support/store-contract.ts";
import { onRedisStores } from "./every-redis-store.ts";

onRedisStores(everyRedisClient, everyClusterClient, keepsTheContract, keepsAnswers);
