import { getSharedIdempotencyService, idempotency } from "express-idempotency";
import redisAdapter from "express-idempotency-redis-adapter";
import type { Library } from "../library.ts";
import { serveShop } from "../shop.ts";

export const library: Library = {
  name: "express-idempotency",
  settings:
    "the middleware with express-idempotency-redis-adapter, `isHit` before the order and `reportError` when it throws.",
  async start(port, redisUrl) {
    const dataAdapter = new redisAdapter.default({ connectionConfig: { url: redisUrl } });
    await dataAdapter.connect();
    const middleware = idempotency({ dataAdapter });
    const service = getSharedIdempotencyService();
    await serveShop(port, redisUrl, (placeOrder) => [
      middleware,
      async (req, res, next) => {
        if (service.isHit(req)) return;
        try {
          await placeOrder(req, res, next);
        } catch (error) {
          await service.reportError(req);
          throw error;
        }
      },
    ]);
  },
};
