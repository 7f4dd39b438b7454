import { Redis } from "ioredis";
import { freePort } from "../../support/free-port.ts";
import { type RedisServer, startServer } from "../../support/server-process.ts";
import { type Asked, post } from "./client.ts";
import type { Hello } from "./library.ts";
import { countsDb, type Order, runsKey } from "./order.ts";
import { ShopProcess } from "./shop-process.ts";

/** One library's shop with a Redis of its own, both real processes. */
export class Stage {
  readonly #module: URL;
  readonly #redis: RedisServer;
  readonly #libraryKeys: Redis;
  readonly #counts: Redis;
  #shop: ShopProcess;
  #carts = 0;
  /** How often the shop's process ended without having been killed. */
  ended = 0;

  private constructor(module: URL, redis: RedisServer, shop: ShopProcess) {
    this.#module = module;
    this.#redis = redis;
    this.#shop = shop;
    this.#libraryKeys = new Redis(redis.url);
    this.#counts = new Redis(redis.url, { db: countsDb });
  }

  static async open(module: URL, binary: string): Promise<Stage> {
    const redis = await startServer(binary);
    try {
      const shop = await ShopProcess.start(module, await freePort(), redis.url);
      return new Stage(module, redis, shop);
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
    if (!this.#shop.hasEnded) return;
    this.ended++;
    await this.startShop();
  }

  async startShop(): Promise<void> {
    this.#shop = await ShopProcess.start(this.#module, this.port, this.#redis.url);
  }

  async killShop(): Promise<void> {
    await this.#shop.kill();
  }

  /** The library's keys and how long Redis keeps each, in ms; −1: for ever. */
  async keys(): Promise<Map<string, number>> {
    const names = await this.#libraryKeys.keys("*");
    const times = await Promise.all(names.map((name) => this.#libraryKeys.pttl(name)));
    return new Map(names.map((name, index) => [name, times[index] ?? -2]));
  }

  async close(): Promise<void> {
    await this.#shop.kill();
    this.#libraryKeys.disconnect();
    this.#counts.disconnect();
    await this.#redis.stop();
  }
}
