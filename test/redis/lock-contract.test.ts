import { onEveryStore } from "./every-store.ts";
import { carriesALock } from "./lock-contract.ts";

onEveryStore(carriesALock);
