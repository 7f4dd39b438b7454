import { fileURLToPath } from "node:url";
import { defineConfig } from "vitest/config";

/** As the suite's own projects, for a run that is ended from outside. */
export default defineConfig({
  test: {
    root: fileURLToPath(new URL("../../..", import.meta.url)),
    pool: "forks",
    include: [fileURLToPath(new URL("./endless.fixture.ts", import.meta.url))],
    globalSetup: ["test/support/global-setup.ts"],
  },
});
