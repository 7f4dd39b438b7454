import { keepsTheContract } from "./contract.ts";
import { onEveryStore } from "./every-store.ts";

onEveryStore(keepsTheContract);
