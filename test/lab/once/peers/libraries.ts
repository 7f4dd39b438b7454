import { createRequire } from "node:module";
import { Readable } from "node:stream";
import type { StreamableFile } from "@nestjs/common";
import type { Asked } from "@node-idempotency/core";
import type { RequestHandler } from "express";
import {
  type Library,
  linesOf,
  type Order,
  type Receipt,
  receiptOf,
  serveShop,
  Work,
} from "../shop.ts";

/** Each loads its own packages only, so that its restart is not slower for the others. */
export const peers: Readonly<Record<string, Library>> = {
  "express-idempotency": {
    name: "express-idempotency",
    settings:
      "the middleware with express-idempotency-redis-adapter, `isHit` before the order and `reportError` when it throws.",
    start: startExpressIdempotency,
  },
  "node-idempotency": {
    name: "@node-idempotency/core",
    settings:
      "the lab's middleware calls `onRequest` before the order, and `onResponse` with the body that passes `res.send`, as the project's own adapter does. Errors are recorded, as the README shows.",
    start: startNodeIdempotency,
  },
  "node-idempotency-nest": {
    name: "@node-idempotency/nestjs",
    settings:
      "its module and decorator on NestJS; the stream is a `StreamableFile`, an exception is Nest's own 500. It brings an older core, 1.0.7.",
    start: startNest,
  },
};

async function startExpressIdempotency(port: number, redisUrl: string): Promise<void> {
  const { getSharedIdempotencyService, idempotency } = await import("express-idempotency");
  // Under tsx an `import()` of this CommonJS module has another shape than without.
  const adapter: typeof import("express-idempotency-redis-adapter").default = createRequire(
    import.meta.url,
  )("express-idempotency-redis-adapter");
  const dataAdapter = new adapter.default({ connectionConfig: { url: redisUrl } });
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
}

async function startNodeIdempotency(port: number, redisUrl: string): Promise<void> {
  const core = await import("@node-idempotency/core");
  const { RedisStorageAdapter } = await import("@node-idempotency/storage-adapter-redis");
  const storage = new RedisStorageAdapter({ url: redisUrl });
  await storage.connect();
  const guard = guardWith(core, new core.Idempotency(storage));
  await serveShop(port, redisUrl, (placeOrder) => [guard, placeOrder]);
}

const statuses: Record<string, number> = {
  REQUEST_IN_PROGRESS: 409,
  IDEMPOTENCY_FINGERPRINT_MISSMATCH: 422,
};

type Core = typeof import("@node-idempotency/core");

function guardWith(
  { IdempotencyError }: Core,
  idempotency: InstanceType<Core["Idempotency"]>,
): RequestHandler {
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

/** Nest's decorators are called as the functions that they are: no compiler option is needed. */
async function startNest(port: number, redisUrl: string): Promise<void> {
  const nest = await import("@nestjs/common");
  const { NestFactory } = await import("@nestjs/core");
  const { Idempotent, NodeIdempotencyModule } = await import("@node-idempotency/nestjs");
  const work = new Work(redisUrl);
  class Orders {
    async place(order: Order, user: string): Promise<Receipt | StreamableFile> {
      const run = await work.run(order);
      if (order.answer !== "stream") return receiptOf(order, user, run);
      const lines = Readable.from(linesOf(order, user, run));
      return new nest.StreamableFile(lines, { type: "text/plain" });
    }
  }
  nest.Controller()(Orders);
  const place = Object.getOwnPropertyDescriptor(Orders.prototype, "place") as PropertyDescriptor;
  nest.Post("orders")(Orders.prototype, "place", place);
  Idempotent()(Orders.prototype, "place", place);
  nest.Body()(Orders.prototype, "place", 0);
  nest.Headers("x-user-id")(Orders.prototype, "place", 1);

  class Shop {}
  const storage = { adapter: "redis" as const, options: { url: redisUrl } };
  nest.Module({
    imports: [NodeIdempotencyModule.forRootAsync({ storage })],
    controllers: [Orders],
  })(Shop);
  const app = await NestFactory.create(Shop, { logger: false });
  await app.listen(port, "127.0.0.1");
}
