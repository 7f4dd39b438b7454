import { Redis } from "ioredis";
import { submitGuard } from "../../../src/express/index.ts";
import { RedisStore, SubmitLock } from "../../../src/index.ts";
import type { Library } from "./library.ts";
import { serveShop } from "./shop.ts";

export const library: Library = {
  name: "submit-lock, the lock only",
  settings: "`submitGuard({ lock, userId })` with `protect`. It does not use the key.",
  start(port, redisUrl) {
    const lock = new SubmitLock({ store: new RedisStore(new Redis(redisUrl)) });
    const guard = submitGuard({ lock, userId: (req) => req.get("x-user-id") });
    return serveShop(port, redisUrl, (placeOrder) => [guard.protect(placeOrder)]);
  },
};
