import { lifecycleSuite } from "../lab/lifecycle/lifecycle.ts";

// `npm run test:lab` has a longer form of it.
lifecycleSuite({ customers: 10, rounds: 4 });
