import type { Request } from "express";
import { Redis } from "ioredis";
import { type SubmitGuardOptions, submitGuard } from "../../../src/express/index.ts";
import { RedisStore, SubmitLock } from "../../../src/index.ts";
import { type Library, serveShop } from "./shop.ts";

/** The rows of the table that need no other package, by the word that chooses them. */
export const ownLibraries: Readonly<Record<string, Library>> = {
  plain: {
    name: "no protection",
    settings: "the route alone.",
    start: (port, redisUrl) => serveShop(port, redisUrl, (placeOrder) => [placeOrder]),
  },
  "lock-only": {
    name: "submit-lock, the lock only",
    settings: "`submitGuard({ lock, userId })` with `protect`. It does not use the key.",
    start: (port, redisUrl) => serveGuarded(port, redisUrl, {}),
  },
  "submit-lock": {
    name: "submit-lock, idempotency",
    settings: "`submitGuard({ lock, userId, idempotency: {} })` with `protect`.",
    notes: {
      "100 KB":
        "by default an answer of more than 64 KiB (`maxBodyBytes`) is recorded without its body. A retry is not run, and is answered 409 `idempotency_answer_unavailable`.",
    },
    start: (port, redisUrl) => serveGuarded(port, redisUrl, { idempotency: {} }),
  },
};

/** All rows: `peers/libraries.ts` has the others. */
export const rows: readonly string[] = [
  ...Object.keys(ownLibraries),
  "express-idempotency",
  "node-idempotency",
  "node-idempotency-nest",
];

function serveGuarded(
  port: number,
  redisUrl: string,
  options: Pick<SubmitGuardOptions, "idempotency">,
): Promise<void> {
  const lock = new SubmitLock({ store: new RedisStore(new Redis(redisUrl)) });
  const userId = (req: Request) => req.get("x-user-id");
  const guard = submitGuard({ lock, userId, ...options });
  return serveShop(port, redisUrl, (placeOrder) => [guard.protect(placeOrder)]);
}
