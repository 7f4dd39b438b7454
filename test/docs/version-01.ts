import { randomUUID } from "node:crypto";
import type { Redis } from "ioredis";

const acquire = `
if redis.call('SET', KEYS[1], ARGV[1], 'PX', ARGV[2], 'NX') then return -1 end
if redis.call('GET', KEYS[1]) == ARGV[1] then return -2 end
local left = redis.call('PTTL', KEYS[1])
if left < 0 then redis.call('PEXPIRE', KEYS[1], 60000) end
return left`;

const extend = `
if redis.call('GET', KEYS[1]) == ARGV[1] then return redis.call('PEXPIRE', KEYS[1], ARGV[2]) end
return redis.call('EXISTS', KEYS[1]) == 1 and -1 or 0`;

const release = `
if redis.call('GET', KEYS[1]) == ARGV[1] then return redis.call('DEL', KEYS[1]) end
return redis.call('EXISTS', KEYS[1]) == 1 and -1 or 0`;

/** A process of version 0.1, as far as Redis sees it: the value is the bare owner id, compared whole. */
export class Version01 {
  readonly #redis: Redis;
  readonly #ownerId = randomUUID();

  constructor(redis: Redis) {
    this.#redis = redis;
  }

  async acquire(key: string): Promise<"acquired" | "contended"> {
    const code = await this.#redis.eval(acquire, 1, key, this.#ownerId, 10_000);
    return Number(code) < 0 ? "acquired" : "contended";
  }

  /** Whether the lock was still its own. */
  async extend(key: string): Promise<boolean> {
    return (await this.#redis.eval(extend, 1, key, this.#ownerId, 10_000)) === 1;
  }

  async release(key: string): Promise<boolean> {
    return (await this.#redis.eval(release, 1, key, this.#ownerId)) === 1;
  }
}
