import { fileURLToPath } from "node:url";
import { defineConfig } from "vitest/config";

/** The tests that a mutant of Stryker meets: parts, rules and contracts, on real servers. */
export default defineConfig({
  test: {
    root: fileURLToPath(new URL("../../..", import.meta.url)),
    include: [
      "test/unit/*.test.ts",
      "test/contracts/*.test.ts",
      "test/redis/{rule-0,rule-15,rule-16,rule-17,once-,on-call,diagnostics}*.test.ts",
      "test/http/{users,answers,protect,once-ids,once-refusals,once-replays}.test.ts",
    ],
    // They read the sources, which are full of mutants here.
    exclude: ["test/unit/{architecture,rules,dashboards}.test.ts"],
    pool: "forks",
    // Without it, a worker that has run before would go on with its earlier mutant.
    isolate: true,
    testTimeout: 60_000,
    hookTimeout: 60_000,
    globalSetup: ["test/support/global-setup.ts"],
  },
});
