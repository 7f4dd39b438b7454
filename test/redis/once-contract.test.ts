import { onEveryStore } from "./every-store.ts";
import { keepsAnswers } from "./once-contract.ts";

onEveryStore(keepsAnswers);
