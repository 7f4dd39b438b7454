import { keepsAnswers } from "../support/once-contract.ts";
import { onEveryRedisStore } from "./every-redis-store.ts";

onEveryRedisStore(keepsAnswers);
