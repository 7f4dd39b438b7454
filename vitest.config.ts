import { fileURLToPath } from "node:url";
import { defineConfig } from "vitest/config";

const browser = ["test/lab/browser/**/*.test.ts"];
const lab = ["test/lab/**/*.test.ts", "test/package/{consumers,quick-starts}.test.ts"];

export default defineConfig({
  test: {
    root: fileURLToPath(new URL(".", import.meta.url)),
    pool: "forks",
    // Two files at a time also on a large machine: most tests start servers of their own, and a
    // crowd of them makes the timings that a lock lives by needlessly loose.
    maxWorkers: 2,
    testTimeout: 30_000,
    hookTimeout: 60_000,
    reporters: ["default"],
    coverage: { provider: "v8", include: ["src/**"], reporter: ["text", "html"] },
    projects: [
      {
        extends: true,
        // Without a server, a build or anything that is made before.
        test: { name: "unit", include: ["test/unit/**/*.test.ts"] },
      },
      {
        extends: true,
        test: {
          name: "server",
          include: ["test/**/*.test.ts"],
          exclude: [
            "test/unit/**",
            "test/lab/**",
            "test/package/consumers.test.ts",
            "test/package/projects/**",
            "**/node_modules/**",
          ],
          globalSetup: ["test/support/global-setup.ts"],
        },
      },
      {
        extends: true,
        // `npm run test:lab`: bounded forms of the laboratories, and projects that install the tarball.
        test: {
          name: "lab",
          include: lab,
          exclude: browser,
          globalSetup: ["test/support/global-setup.ts"],
        },
      },
      {
        extends: true,
        // `npm run test:browser`: the page of the demo in a real Chromium.
        test: {
          name: "browser",
          include: browser,
          testTimeout: 120_000,
          fileParallelism: false,
          globalSetup: ["test/support/global-setup.ts"],
        },
      },
    ],
  },
});
