import { readFileSync } from "node:fs";
import { fileURLToPath } from "node:url";
import { defineConfig } from "vitest/config";
import { BaseSequencer, type TestSpecification } from "vitest/node";

const browser = ["test/lab/browser/**/*.test.ts"];
const recipes = ["test/lab/recipes/*.test.ts"];
const site = ["test/lab/site/*.test.ts"];
// What installs the tarball, has a PostgreSQL of its own in every process that it starts, or answers
// thousands of requests to measure what they leave.
const heavy = [
  "test/http/http2-growth.test.ts",
  "test/package/consumers.test.ts",
  "test/package/node-redis.test.ts",
  "test/docs/examples/**/*.test.ts",
];
// Late answers of a busy machine are measured again there, and orders have to flow at a rate: so
// nothing runs beside them.
const faults = ["test/lab/faults/faults.test.ts", "test/lab/shop/outage.test.ts"];
const lab = ["test/lab/**/*.test.ts", ...heavy];

// They listen to everything that happens in their process.
const listening = ["test/unit/opentelemetry/**/*.test.ts"];

// In a fresh clone vitest begins with the largest files. Small ones that take long would run alone at
// the end: their first line says "@slow", which a file keeps when it is renamed.
const isSlow = ({ moduleId }: TestSpecification) =>
  readFileSync(moduleId, "utf8").startsWith("// @slow");

class LongestFirst extends BaseSequencer {
  override async sort(files: TestSpecification[]): Promise<TestSpecification[]> {
    const sorted = await super.sort(files);
    return [...sorted.filter(isSlow), ...sorted.filter((each) => !isSlow(each))];
  }
}

export default defineConfig({
  test: {
    root: fileURLToPath(new URL(".", import.meta.url)),
    pool: "forks",
    // Eight files at a time on any machine: most tests wait for a lock's own times more than they
    // compute, and start servers of their own, of which a crowd would make those times loose.
    maxWorkers: 8,
    sequence: { sequencer: LongestFirst },
    // Longer than what a test waits for, so that a failure tells what was awaited.
    testTimeout: 360_000,
    hookTimeout: 360_000,
    reporters: ["default"],
    coverage: { provider: "v8", include: ["src/**"], reporter: ["text", "html"] },
    projects: [
      {
        extends: true,
        // Without a server, a build or anything that is made before.
        // To load every module anew for each file would cost half of the processor time. In threads,
        // because a worker of two projects would have two copies of the package.
        test: {
          name: "unit",
          include: ["test/unit/**/*.test.ts"],
          exclude: listening,
          isolate: false,
          pool: "threads",
        },
      },
      {
        extends: true,
        // The rest of `npm run test:fast`, each file in a process of its own.
        test: { name: "listening", include: listening },
      },
      {
        extends: true,
        test: {
          name: "server",
          isolate: false,
          include: ["test/**/*.test.ts"],
          exclude: [
            "test/unit/**",
            "test/lab/**",
            ...heavy,
            "test/package/projects/**",
            "**/node_modules/**",
          ],
          globalSetup: ["test/support/global-setup.ts"],
        },
      },
      {
        extends: true,
        // `npm run test:lab`: bounded forms of the laboratories, and what is heavy.
        test: {
          name: "lab",
          include: lab,
          exclude: [...browser, ...recipes, ...site, ...faults],
          globalSetup: ["test/support/global-setup.ts"],
        },
      },
      {
        extends: true,
        // The rest of `npm run test:lab`, when all others have ended.
        test: {
          name: "faults",
          include: faults,
          fileParallelism: false,
          sequence: { groupOrder: 1 },
          globalSetup: ["test/support/global-setup.ts"],
        },
      },
      {
        extends: true,
        // `npm run recipes`: the packed tarball with frameworks, bundlers and runtimes.
        test: { name: "recipes", include: recipes, globalSetup: ["test/support/global-setup.ts"] },
      },
      {
        extends: true,
        // `npm run test:browser`: the page of the demo in a real Chromium.
        test: {
          name: "browser",
          include: browser,
          fileParallelism: false,
          globalSetup: ["test/support/global-setup.ts"],
        },
      },
      {
        extends: true,
        // `npm run test:site`: the site is built, with tools from the registry, and clicked through.
        test: { name: "site", include: site },
      },
    ],
  },
});
