import "reflect-metadata";
import {
  Controller,
  Inject,
  type MiddlewareConsumer,
  Module,
  type NestModule,
  type OnApplicationShutdown,
  Post,
  RequestMethod,
  UseGuards,
  UseInterceptors,
} from "@nestjs/common";
import { NestFactory } from "@nestjs/core";
import { Redis } from "ioredis";
import { RedisStore, SubmitLock } from "submit-lock";
import { submitGuard } from "submit-lock/express";
import { Once } from "./once.js";
import { OneAtATime, SignedIn } from "./one-at-a-time.js";

const { PAYMENTS_URL = "", PORT, REDIS_URL = "" } = process.env;

async function pay(): Promise<object> {
  return (await (await fetch(PAYMENTS_URL, { method: "POST" })).json()) as object;
}

@Controller()
class Orders {
  @Post("orders")
  place(): Promise<object> {
    return pay();
  }

  @Post("orders/broken")
  async fail(): Promise<object> {
    await pay();
    throw new Error("the order table is away");
  }

  @Post("refunds")
  @UseGuards(SignedIn)
  @UseInterceptors(OneAtATime)
  refund(): Promise<object> {
    return pay();
  }

  @Post("returns")
  @UseGuards(SignedIn)
  @UseInterceptors(Once)
  takeBack(): Promise<object> {
    return pay();
  }
}

@Module({
  controllers: [Orders],
  providers: [
    {
      provide: SubmitLock,
      useFactory: async () => {
        const lock = new SubmitLock({ store: new RedisStore(new Redis(REDIS_URL)) });
        await lock.check({ submissions: true });
        return lock;
      },
    },
  ],
})
class Shop implements NestModule, OnApplicationShutdown {
  @Inject(SubmitLock) private readonly lock!: SubmitLock;

  configure(consumer: MiddlewareConsumer): void {
    const guard = submitGuard({
      lock: this.lock,
      userId: (req) => req.get("x-user-id"), // what a middleware before this one has verified
      idempotency: {},
    });
    consumer
      .apply(guard)
      .forRoutes(
        { path: "orders", method: RequestMethod.POST },
        { path: "orders/broken", method: RequestMethod.POST },
      );
  }

  async onApplicationShutdown(): Promise<void> {
    await this.lock.close();
  }
}

async function main(): Promise<void> {
  const app = await NestFactory.create(Shop, { logger: ["error"] });
  await app.listen(Number(PORT), "127.0.0.1");
}

void main();
