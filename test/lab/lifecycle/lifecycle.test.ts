import { lifecycleSuite } from "./lifecycle.ts";

// `npm test` has a short form of it.
lifecycleSuite({ customers: 20, rounds: 12 });
