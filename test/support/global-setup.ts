import type { TestProject } from "vitest/node";
import { serverBinary, serverVersion } from "./server-binary.ts";
import { startServer } from "./server-process.ts";

declare module "vitest" {
  export interface ProvidedContext {
    redisServerBinary: string;
    sharedRedisPort: number;
  }
}

/**
 * Runs once, before any worker: two workers that both look for a server might both install one.
 */
export default async function setup(project: TestProject): Promise<() => Promise<void>> {
  const binary = serverBinary();
  console.log(`${serverVersion(binary)} (${binary}), Node ${process.version}`);
  const shared = await startServer(binary);
  project.provide("redisServerBinary", binary);
  project.provide("sharedRedisPort", shared.port);
  return () => shared.stop();
}
