import { vi } from "vitest";
import type * as expressEntry from "../../src/express/index.ts";
import type * as entry from "../../src/index.ts";
import type * as koaEntry from "../../src/koa/index.ts";

export interface Copy {
  readonly expressGuard: typeof expressEntry.submitGuard;
  readonly koaGuard: typeof koaEntry.submitGuard;
  readonly SubmitLock: typeof entry.SubmitLock;
  readonly Store: typeof entry.RedisStore;
}

/** The package once more, with no module in common with the one that a test imports. */
export async function anotherCopy(): Promise<Copy> {
  vi.resetModules();
  const express: typeof expressEntry = await import("../../src/express/index.ts");
  const koa: typeof koaEntry = await import("../../src/koa/index.ts");
  const { SubmitLock, RedisStore: Store } = await import("../../src/index.ts");
  return { expressGuard: express.submitGuard, koaGuard: koa.submitGuard, SubmitLock, Store };
}
