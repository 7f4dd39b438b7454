import type { Request } from "express";
import { Redis } from "ioredis";
import { submitGuard } from "../../../src/express/index.ts";
import { RedisStore, SubmitLock } from "../../../src/index.ts";
import type { Library } from "./library.ts";
import { serveShop } from "./shop.ts";

export const library: Library = {
  name: "submit-lock, idempotency",
  settings: "`submitGuard({ lock, userId, idempotency: {} })` with `protect`.",
  notes: {
    "100 KB":
      "by default an answer of more than 64 KiB (`maxBodyBytes`) is recorded without its body. A retry is not run, and is answered 409 `idempotency_answer_unavailable`.",
  },
  start(port, redisUrl) {
    const lock = new SubmitLock({ store: new RedisStore(new Redis(redisUrl)) });
    const userId = (req: Request) => req.get("x-user-id");
    const guard = submitGuard({ lock, userId, idempotency: {} });
    return serveShop(port, redisUrl, (placeOrder) => [guard.protect(placeOrder)]);
  },
};
