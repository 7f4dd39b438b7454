/** What Node runs for `npm test`, after the build: every project but the laboratories. */
export const suite: readonly string[] = [
  "node_modules/vitest/vitest.mjs",
  "run",
  ...["--project", "unit"],
  ...["--project", "listening"],
  ...["--project", "server"],
];
