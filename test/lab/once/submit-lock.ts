import { Redis } from "ioredis";
import { type SubmitGuardOptions, submitGuard } from "../../../src/express/index.ts";
import { RedisStore, SubmitLock } from "../../../src/index.ts";
import type { Library } from "./library.ts";
import { serveShop } from "./shop.ts";

export const library: Library = {
  name: "submit-lock, idempotency",
  settings: "`submitGuard({ lock, userId, idempotency: {} })` with `protect`, on Express.",
  start(port, redisUrl) {
    const lock = new SubmitLock({ store: new RedisStore(new Redis(redisUrl)) });
    const options: SubmitGuardOptions & { idempotency: object } = {
      lock,
      userId: (req) => req.get("x-user-id"),
      idempotency: {},
    };
    const guard = submitGuard(options);
    return serveShop(port, redisUrl, (placeOrder) => [guard.protect(placeOrder)]);
  },
};
