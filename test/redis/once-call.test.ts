import { runsOnce } from "../support/once-call.ts";
import { onEveryRedisStore } from "./every-redis-store.ts";

onEveryRedisStore(runsOnce);
