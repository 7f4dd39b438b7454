import { Redis } from "ioredis";
import { Child } from "../../support/child.ts";
import { freePort } from "../../support/free-port.ts";
import { type RedisServer, startServer } from "../../support/server-process.ts";
import { type Asked, post } from "./client.ts";
import { countsDb, type Hello, type Order, runsKey } from "./shop.ts";

/** A shop that can be killed. */
export interface ShopProcess {
  readonly hello: Hello;
  readonly port: number;
  readonly child: Child<Hello>;
}

/** The shop behind the library of that name, on a free port if none is given. */
export async function startShop(
  library: string,
  redisUrl: string,
  givenPort?: number,
): Promise<ShopProcess> {
  const port = givenPort ?? (await freePort());
  const child = new Child<Hello>(
    new URL("./server.ts", import.meta.url),
    [library, `${port}`, redisUrl],
    { env: { NODE_ENV: "production" } },
  );
  return { hello: await child.next(20_000), port, child };
}

/** One library's shop with a Redis of its own, both real processes. */
export class Stage {
  readonly #library: string;
  readonly #redis: RedisServer;
  readonly #libraryKeys: Redis;
  readonly #counts: Redis;
  #shop: ShopProcess;
  #carts = 0;
  /** How often the shop's process ended without having been killed. */
  ended = 0;

  private constructor(library: string, redis: RedisServer, shop: ShopProcess) {
    this.#library = library;
    this.#redis = redis;
    this.#shop = shop;
    this.#libraryKeys = new Redis(redis.url);
    this.#counts = new Redis(redis.url, { db: countsDb });
  }

  static async open(library: string, binary: string): Promise<Stage> {
    const redis = await startServer(binary);
    try {
      return new Stage(library, redis, await startShop(library, redis.url));
    } catch (error) {
      await redis.stop();
      throw error;
    }
  }

  get hello(): Hello {
    return this.#shop.hello;
  }

  get port(): number {
    return this.#shop.port;
  }

  /** A cart that nobody has ordered yet, with a user and a key of its own. */
  newOrder(order: Partial<Order> = {}): Asked {
    const cart = `cart-${this.#carts++}`;
    return {
      order: { cart, item: "bicycle", answer: "json", workMs: 50, ...order },
      user: `user-of-${cart}`,
      key: `key-of-${cart}`,
    };
  }

  async runsOf({ order }: Asked): Promise<number> {
    return Number((await this.#counts.get(runsKey(order.cart))) ?? 0);
  }

  /** The first request of a process is slow for reasons that are not the library's. */
  async warmUp(): Promise<void> {
    for (let round = 0; round < 3; round++) await post(this.port, this.newOrder({ workMs: 1 }));
  }

  /** Starts it again if it ended by itself. */
  async ensureShop(): Promise<void> {
    if (!this.#shop.child.hasEnded) return;
    this.ended++;
    await this.startShop();
  }

  async startShop(): Promise<void> {
    this.#shop = await startShop(this.#library, this.#redis.url, this.port);
  }

  async killShop(): Promise<void> {
    await this.#shop.child.kill();
  }

  /** The library's keys and how long Redis keeps each, in ms; −1: for ever. */
  async keys(): Promise<Map<string, number>> {
    const names = await this.#libraryKeys.keys("*");
    const times = await Promise.all(names.map((name) => this.#libraryKeys.pttl(name)));
    return new Map(names.map((name, index) => [name, times[index] ?? -2]));
  }

  async close(): Promise<void> {
    await this.#shop.child.kill();
    this.#libraryKeys.disconnect();
    this.#counts.disconnect();
    await this.#redis.stop();
  }
}
