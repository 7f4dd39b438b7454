import fc from "fast-check";
import { Redis } from "ioredis";
import { afterAll, beforeAll, expect, test } from "vitest";
import {
  acquireScript,
  extendScript,
  releaseScript,
} from "../../../../src/stores/redis/scripts.ts";
import { freshUser } from "../../../support/ids.ts";
import { sharedRedisPort } from "../../../support/redis-server.ts";
import { Keys } from "./keys.ts";
import { runScript } from "./script-runner.ts";

/**
 * The simulation is worth as much as its server is like Redis: the same commands, at the same time
 * by the server's clock, have to give the same answers and leave the same keys.
 */

const owners = ["ada", "bob", "cay"];
const windowMs = 2_000;
const adoptMs = 60_000;

const owner = fc.constantFrom(...owners);
const key = fc.constantFrom("k1", "k2", "k3");
const life = fc.constantFrom(30, 20_000, 25_000);
const entries = fc.array(fc.record({ key, owner }), { minLength: 1, maxLength: 4 });
const step = fc.oneof(
  // In time, too late, too early.
  {
    arbitrary: fc.record({
      acquire: entries,
      life,
      inMs: fc.constantFrom(1_000, 1_000, -500, 9_000),
    }),
    weight: 5,
  },
  { arbitrary: fc.record({ extend: entries, life }), weight: 3 },
  { arbitrary: fc.record({ release: entries }), weight: 3 },
  { arbitrary: fc.record({ oldLock: key }), weight: 1 },
  { arbitrary: fc.record({ list: key }), weight: 1 },
  { arbitrary: fc.record({ waitMs: fc.constant(60) }), weight: 1 },
);

let redis: Redis;
beforeAll(() => {
  redis = new Redis(sharedRedisPort());
});
afterAll(() => redis.quit());

test("the simulated server answers as Redis does", async () => {
  await fc.assert(
    fc.asyncProperty(fc.array(step, { minLength: 1, maxLength: 12 }), async (steps) => {
      const pair = new Pair(freshUser());
      for (const each of steps) {
        if ("acquire" in each) await pair.acquire(each.acquire, each.life, each.inMs);
        else if ("extend" in each) await pair.extend(each.extend, each.life);
        else if ("release" in each) await pair.release(each.release);
        else if ("oldLock" in each) await pair.plantOldLock(each.oldLock);
        else if ("list" in each) await pair.plantList(each.list);
        else await new Promise((resolve) => setTimeout(resolve, each.waitMs));
      }
      await pair.compareKeys();
    }),
    { numRuns: 150 },
  );
});

interface Entry {
  readonly key: string;
  readonly owner: string;
}

/** Both ends of a life are rounded to milliseconds. */
const roundingMs = 2;

/** One look at a key, in one moment: Redis' clock, the type, a string's value, and what is left of its life. */
type Look = [now: number, type: string, value: string | null, leftMs: number];
const look = `
local time = redis.call('TIME')
local now = time[1] * 1000 + math.floor(time[2] / 1000)
local type = redis.call('TYPE', KEYS[1]).ok
local value = false
if type == 'string' then value = redis.call('GET', KEYS[1]) end
return { now, type, value, redis.call('PTTL', KEYS[1]) }
`;

function clockOf([seconds, micros]: readonly [string | number, string | number]): number {
  return Number(seconds) * 1_000 + Math.floor(Number(micros) / 1_000);
}

function typeOf(value: string | readonly string[] | undefined): string {
  if (value === undefined) return "none";
  return typeof value === "string" ? "string" : "list";
}

class Pair {
  readonly #prefix: string;
  readonly #expiries = new Set<number>();
  readonly #simulated: Keys;
  /** Nothing is compared any more: a key ran out at the very time of a command. */
  #isBlurred = false;
  /**
   * A key that runs out within so many milliseconds may be gone on one side only, and what it has
   * left may differ by as much: a server that lost its processor between the clock and the write of
   * a script has given the key its life later than the clock said.
   */
  #blurMs = roundingMs;

  constructor(prefix: string) {
    this.#prefix = prefix;
    const remember = (_key: string, _value: string, expiresAt?: number) => {
      if (expiresAt !== undefined) this.#expiries.add(expiresAt);
    };
    this.#simulated = new Keys({
      set: remember,
      lengthened: remember,
      deleted() {},
      expired() {},
    });
  }

  async acquire(entries: readonly Entry[], life: number, inMs: number): Promise<void> {
    const deadline = clockOf((await redis.time()) as [number, number]) + inMs;
    await this.#both(acquireScript, entries, [
      deadline,
      windowMs,
      adoptMs,
      life,
      ...entries.map((entry) => entry.owner),
    ]);
  }

  async extend(entries: readonly Entry[], life: number): Promise<void> {
    await this.#both(extendScript, entries, [life, ...entries.map((entry) => entry.owner)]);
  }

  async release(entries: readonly Entry[]): Promise<void> {
    await this.#both(
      releaseScript,
      entries,
      entries.map((entry) => entry.owner),
    );
  }

  async plantOldLock(key: string): Promise<void> {
    await redis.set(this.#name(key), "old");
    this.#simulated.set(this.#name(key), "old", undefined);
  }

  async plantList(key: string): Promise<void> {
    await redis.del(this.#name(key));
    await redis.rpush(this.#name(key), "element");
    this.#simulated.set(this.#name(key), ["element"], undefined);
  }

  async compareKeys(): Promise<void> {
    for (const key of ["k1", "k2", "k3"].map((each) => this.#name(each))) {
      const [now, type, value, leftMs] = await this.#timed<Look>(look, [key], []);
      if (this.#blurs(now)) return;
      const simulated = this.#simulated.live(key, now)?.value;
      expect(type).toBe(typeOf(simulated));
      if (type === "string") expect(value).toBe(simulated);
      expect(Math.abs(leftMs - this.#simulated.remaining(key, now))).toBeLessThanOrEqual(
        this.#blurMs,
      );
    }
  }

  async #both(script: string, entries: readonly Entry[], args: (string | number)[]): Promise<void> {
    const keys = entries.map(({ key }) => this.#name(key));
    const real = await this.#timed<number[]>(script, keys, args);
    const now = real[0] as number;
    if (this.#blurs(now)) return;
    const simulated = runScript(this.#simulated, now, script, keys, args) as number[];
    expect(simulated).toHaveLength(real.length);
    simulated.forEach((code, index) => {
      const realCode = real[index] as number;
      // What a key has left may be counted from the millisecond before.
      if (code > 1) expect(Math.abs(realCode - code)).toBeLessThanOrEqual(this.#blurMs);
      else expect(realCode).toBe(code);
    });
  }

  /** Runs a script whose reply begins with the clock, and learns how long it can have taken. */
  async #timed<Reply extends readonly [number, ...unknown[]] | number[]>(
    script: string,
    keys: readonly string[],
    args: readonly (string | number)[],
  ): Promise<Reply> {
    const calls = redis.pipeline().eval(script, keys.length, ...keys, ...args);
    const [answer, time] = (await calls.time().exec()) as [error: unknown, value: unknown][];
    if (answer?.[0]) throw answer[0];
    const reply = answer?.[1] as Reply;
    const over = clockOf(time?.[1] as [string, string]);
    this.#blurMs = Math.max(this.#blurMs, roundingMs + over - reply[0]);
    return reply;
  }

  #blurs(now: number): boolean {
    this.#isBlurred ||= [...this.#expiries].some((at) => Math.abs(at - now) <= this.#blurMs);
    return this.#isBlurred;
  }

  #name(key: string): string {
    return `simulated:${this.#prefix}:${key}`;
  }
}
