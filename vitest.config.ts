import { fileURLToPath } from "node:url";
import { defineConfig } from "vitest/config";

export default defineConfig({
  test: {
    root: fileURLToPath(new URL(".", import.meta.url)),
    include: ["test/**/*.test.ts"],
    exclude: ["test/package/projects/**"],
    globalSetup: ["test/support/global-setup.ts"],
    pool: "forks",
    // Two files at a time also on a large machine: most tests start servers of their own, and a
    // crowd of them makes the timings that a lock lives by needlessly loose.
    maxWorkers: 2,
    testTimeout: 30_000,
    hookTimeout: 60_000,
    reporters: ["default"],
    coverage: { provider: "v8", include: ["src/**"], reporter: ["text", "html"] },
  },
});
