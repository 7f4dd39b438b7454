import { vi } from "vitest";
import type * as entry from "../../src/index.ts";
import type { Guards } from "./layers.ts";

export interface Copy extends Guards {
  readonly SubmitLock: typeof entry.SubmitLock;
  readonly Store: typeof entry.RedisStore;
}

/** The package once more, with no module in common with the one that a test imports. */
export async function anotherCopy(): Promise<Copy> {
  vi.resetModules();
  const { submitGuard: expressGuard } = await import("../../src/express/index.ts");
  const { submitGuard: fastifyGuard } = await import("../../src/fastify/index.ts");
  const { submitGuard: fetchGuard } = await import("../../src/fetch/index.ts");
  const { submitGuard: koaGuard } = await import("../../src/koa/index.ts");
  const { SubmitLock, RedisStore: Store } = await import("../../src/index.ts");
  return { expressGuard, fastifyGuard, fetchGuard, koaGuard, SubmitLock, Store };
}
