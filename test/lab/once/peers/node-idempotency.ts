import { type Asked, Idempotency, IdempotencyError } from "@node-idempotency/core";
import { RedisStorageAdapter } from "@node-idempotency/storage-adapter-redis";
import type { RequestHandler } from "express";
import type { Library } from "../library.ts";
import { serveShop } from "../shop.ts";

export const library: Library = {
  name: "@node-idempotency/core",
  settings:
    "the lab's middleware calls `onRequest` before the order, and `onResponse` with the body that passes `res.send`, as the project's own adapter does. Errors are recorded, as the README shows.",
  async start(port, redisUrl) {
    const storage = new RedisStorageAdapter({ url: redisUrl });
    await storage.connect();
    const guard = guardWith(new Idempotency(storage));
    await serveShop(port, redisUrl, (placeOrder) => [guard, placeOrder]);
  },
};

const statuses: Record<string, number> = {
  REQUEST_IN_PROGRESS: 409,
  IDEMPOTENCY_FINGERPRINT_MISSMATCH: 422,
};

function guardWith(idempotency: Idempotency): RequestHandler {
  return async (req, res, next) => {
    const { method, headers, body } = req;
    const asked: Asked = { method, headers, body, path: req.originalUrl };
    try {
      const earlier = await idempotency.onRequest(asked);
      if (earlier !== undefined) {
        const { status, type } = earlier.additional as { status: number; type: string };
        res.status(status).type(type).send(earlier.body);
        return;
      }
    } catch (error) {
      if (!(error instanceof IdempotencyError)) throw error;
      next(Object.assign(error, { status: statuses[error.code] ?? 400 }));
      return;
    }
    const send = res.send.bind(res);
    res.send = (answer) => {
      const additional = { status: res.statusCode, type: res.get("content-type") };
      idempotency.onResponse(asked, { body: answer, additional }).catch(() => {});
      return send(answer);
    };
    next();
  };
}
