import { Readable } from "node:stream";
import { Body, Controller, Headers, Module, Post, StreamableFile } from "@nestjs/common";
import { NestFactory } from "@nestjs/core";
import { Idempotent, NodeIdempotencyModule } from "@node-idempotency/nestjs";
import type { Library } from "../library.ts";
import { linesOf, type Order, type Receipt, receiptOf } from "../order.ts";
import { Work } from "../shop.ts";

/** Nest's decorators are called as the functions that they are: no compiler option is needed. */
export const library: Library = {
  name: "@node-idempotency/nestjs",
  settings:
    "its module and decorator on NestJS; the stream is a `StreamableFile`, an exception is Nest's own 500. It brings an older core, 1.0.7.",
  async start(port, redisUrl) {
    const work = new Work(redisUrl);
    class Orders {
      async place(order: Order, user: string): Promise<Receipt | StreamableFile> {
        const run = await work.run(order);
        if (order.answer !== "stream") return receiptOf(order, user, run);
        return new StreamableFile(Readable.from(linesOf(order, user, run)), { type: "text/plain" });
      }
    }
    Controller()(Orders);
    const place = Object.getOwnPropertyDescriptor(Orders.prototype, "place") as PropertyDescriptor;
    Post("orders")(Orders.prototype, "place", place);
    Idempotent()(Orders.prototype, "place", place);
    Body()(Orders.prototype, "place", 0);
    Headers("x-user-id")(Orders.prototype, "place", 1);

    class Shop {}
    const storage = { adapter: "redis" as const, options: { url: redisUrl } };
    Module({
      imports: [NodeIdempotencyModule.forRootAsync({ storage })],
      controllers: [Orders],
    })(Shop);
    const app = await NestFactory.create(Shop, { logger: false });
    await app.listen(port, "127.0.0.1");
  },
};
