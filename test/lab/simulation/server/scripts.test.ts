import { createHash } from "node:crypto";
import fc from "fast-check";
import { Redis } from "ioredis";
import { afterAll, beforeAll, expect, test } from "vitest";
import type { LockCommand, LockTimes } from "../../../../src/lock/store.ts";
import {
  acquireCommand,
  acquireOnceCommand,
  type Command,
  completeCommand,
  cooldownCommand,
  extendCommand,
  releaseCommand,
} from "../../../../src/stores/redis/commands.ts";
import { freeCommand, inspectCommand } from "../../../../src/stores/redis/on-call-commands.ts";
import { touchScript } from "../../../../src/stores/redis/scripts/touch.ts";
import { lookCommand, recordCommand } from "../../../../src/stores/redis/step-commands.ts";
import { freshUser } from "../../../support/ids.ts";
import { type RedisServer, startRedis } from "../../../support/redis-server.ts";
import { Keys } from "./keys.ts";
import { runScript } from "./script-runner.ts";

/**
 * The simulation is worth as much as its server is like Redis: the same commands, at the same time
 * by the server's clock, have to give the same answers and leave the same keys.
 */

const owners = [1, 2, 3].map((digit) => `0000000${digit}-0000-4000-8000-00000000000${digit}`);
/** Its value is nothing else. */
const ownerOf01 = "00000001-0000-4000-8000-000000000009";
// A hyphen has a meaning in Lua's patterns.
const submissions = ["first-".padEnd(22, "-"), "second".padEnd(22, "0")];
const fingerprints = ["-".repeat(22), "A".repeat(22), "B".repeat(22)];
const sha1Of = (text: string) => createHash("sha1").update(text).digest("hex");
const adoptMs = 60_000;
const windowMs = 2_000;

const entry = fc.record({
  key: fc.constantFrom("k1", "k2", "k3"),
  ownerId: fc.constantFrom(...owners),
  id: fc.constantFrom(...submissions),
  fingerprint: fc.constantFrom(...fingerprints),
  answer: fc.constantFrom('{"s":201}', '{"s":201,"b":"höchstens 3 €"}'),
  /** Of a record, and of a cooldown, from now on. */
  expiresInMs: fc.constantFrom(20_000, 25_000, 60, -60),
  cooldownMs: fc.constantFrom(undefined, 60, 20_000, -60),
  /** Whom a free is about; `undefined` for the owner id. */
  freeId: fc.constantFrom(undefined, undefined, "00000001", sha1Of("old").slice(0, 8)),
  deletesNow: fc.constantFrom(false, false, false, true),
});
type Entry = typeof entry extends fc.Arbitrary<infer Value> ? Value : never;

const settings = {
  /** In time, too late, too early. */
  inMs: fc.constantFrom(1_000, 1_000, -500, 9_000),
  lifeMs: fc.constantFrom(60, 20_000, 25_000),
  /** A floor of the tokens that counts, that is too low, and that is too far ahead. */
  floorInMs: fc.constantFrom(1_000, -1_000, 61_000),
};

const step = fc.oneof(
  {
    weight: 12,
    arbitrary: fc.record({
      command: fc.constantFrom(
        "acquire" as const,
        "acquire" as const,
        "acquireOnce" as const,
        "acquireOnce" as const,
        "extend" as const,
        "release" as const,
        "cooldown" as const,
        "complete" as const,
        "complete" as const,
        "look" as const,
        "record" as const,
        "inspect" as const,
        "free" as const,
        "free" as const,
        "touch" as const,
        "touchRecord" as const,
      ),
      entries: fc.array(entry, { minLength: 1, maxLength: 4 }),
      ...settings,
    }),
  },
  {
    weight: 2,
    arbitrary: fc.record({
      plant: entry,
      at: fc.constantFrom("lock" as const, "record" as const),
      value: fc.constantFrom("a list", "old", "", "1".repeat(58), "2".repeat(59), ownerOf01),
    }),
  },
  { weight: 2, arbitrary: fc.record({ full: fc.boolean() }) },
  { weight: 1, arbitrary: fc.record({ waitMs: fc.constant(100) }) },
);

let server: RedisServer;
let redis: Redis;
beforeAll(async () => {
  server = await startRedis();
  redis = new Redis(server.port);
});
afterAll(async () => {
  await redis.quit();
  await server.stop();
});

test("the simulated server answers as Redis does", { timeout: 120_000 }, async () => {
  await fc.assert(
    fc.asyncProperty(fc.array(step, { minLength: 1, maxLength: 12 }), async (steps) => {
      const pair = new Pair(freshUser());
      for (const each of steps) {
        if ("command" in each) await pair.call(each.command, each.entries, each);
        else if ("plant" in each) await pair.plant(each.plant, each.at, each.value as string);
        else if ("full" in each) await pair.fill(each.full);
        else await new Promise((resolve) => setTimeout(resolve, each.waitMs));
      }
      await pair.fill(false);
      await pair.compareKeys();
    }),
    { numRuns: Number(process.env["SERVER_RUNS"] ?? 300) },
  );
});

/** What the commands are told of an entry: more than any of them asks for. */
interface Request {
  readonly command: LockCommand;
  readonly record: string;
  readonly expiresAtMs: number;
  readonly cooldownUntilMs: number;
  readonly onlyLooks: boolean;
  /** Of a free. */
  readonly id: string;
  readonly by: string;
  readonly reason: string;
  readonly now: boolean;
  deadlineMs: number | undefined;
  answer(): void;
}

const commands: Record<string, Command<Request, unknown>> = {
  acquire: acquireCommand,
  acquireOnce: acquireOnceCommand,
  extend: extendCommand,
  release: releaseCommand,
  cooldown: cooldownCommand,
  complete: completeCommand,
  look: lookCommand,
  record: recordCommand,
  inspect: inspectCommand,
  free: freeCommand,
  touch: touchOf(({ command }) => command.key),
  touchRecord: touchOf(({ command }, recordKey) => recordKey(command)),
};

/** As a wait for replicas writes it, of a lock or of a record. */
function touchOf(
  keyOf: (request: Request, recordKey: (of: LockCommand) => string) => string,
): Command<Request, unknown> {
  return {
    script: touchScript,
    headLength: 1,
    maxEntries: 100,
    head: () => [],
    add: (request, keys, args, recordKey) => {
      keys.push(keyOf(request, recordKey));
      args.push(request.command.ownerId);
    },
    read: () => undefined,
  };
}

/** Redis counts a life from its command, and the command comes after the script's look at the clock. */
const leastBlurMs = 10;

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

function typeOf(value: string | readonly string[] | undefined): string {
  if (value === undefined) return "none";
  return typeof value === "string" ? "string" : "list";
}

/** The real server and the simulated one, with the same history. */
class Pair {
  readonly #prefix: string;
  readonly #names = new Set<string>();
  readonly #expiries = new Set<number>();
  readonly #simulated: Keys;
  #isFull = false;
  /** Nothing is compared any more: a key ran out at the very time of a command. */
  #isBlurred = false;
  /**
   * A key that runs out within so many milliseconds may be gone on one side only, and what it has
   * left may differ by as much: more where the server had lost its processor within a script.
   */
  #blurMs = leastBlurMs;

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

  async call(
    name: string,
    entries: readonly Entry[],
    { inMs, lifeMs, floorInMs }: { inMs: number; lifeMs: number; floorInMs: number },
  ): Promise<void> {
    const command = commands[name] as Command<Request, unknown>;
    const before = await this.#nowMs();
    const times: LockTimes = {
      ttlMs: lifeMs,
      maxHoldMs: adoptMs,
      acquireTimeoutMs: windowMs / 2,
      commandTimeoutMs: 100,
    };
    const requests = entries
      .slice(0, command.maxEntries)
      .map((each) => this.#request(each, times, before));
    const [first] = requests as [Request];
    const floorUs = (before + floorInMs) * 1_000;
    const keys: string[] = [];
    const args = command.head({ command: first.command, deadlineMs: before + inMs, floorUs });
    for (const request of requests) {
      command.add(request, keys, args, (of) => this.#recordName(of.key, of.submission?.id ?? ""));
    }
    const real = await redis.eval(command.script, keys.length, ...keys, ...args).catch(asError);
    // Of a call that failed nobody knows when: it did nothing that depends on the time.
    const now = Array.isArray(real) ? (real[0] as number) : before;
    // A token is the time in microseconds, unless the floor is above it.
    const token = Array.isArray(real) && command.headLength === 2 ? (real[1] as number) : 0;
    const nowUs = Math.floor(token / 1_000) === now ? token : now * 1_000;
    await this.#learnBlur(now);
    this.#blurAt(now, [...requests.map(({ expiresAtMs }) => expiresAtMs), before + inMs]);
    if (this.#isBlurred) return;
    const { script } = command;
    const memory = this.#isFull ? "full" : "enough";
    const evaluation = { script, keyNames: keys, args, nowUs, memory } as const;
    const simulated = await Promise.resolve()
      .then(() => runScript(this.#simulated, evaluation))
      .catch(asError);
    this.#compare(simulated, real, command.headLength);
  }

  async plant({ key, id }: Entry, at: "lock" | "record", value: string): Promise<void> {
    const wasFull = this.#isFull;
    await this.fill(false);
    const lock = this.#name(key);
    const name = at === "lock" ? lock : this.#recordName(lock, id);
    this.#names.add(name);
    await redis.del(name);
    if (value === "a list") await redis.rpush(name, "element");
    else await redis.set(name, value);
    this.#simulated.set(name, value === "a list" ? ["element"] : value, undefined);
    await this.fill(wasFull);
  }

  async fill(isFull: boolean): Promise<void> {
    if (isFull === this.#isFull) return;
    this.#isFull = isFull;
    await redis.config("SET", "maxmemory", isFull ? "1" : "0");
  }

  async compareKeys(): Promise<void> {
    for (const key of this.#names) {
      const [now, type, value, leftMs] = (await redis.eval(look, 1, key)) as Look;
      await this.#learnBlur(now);
      this.#blurAt(now, []);
      if (this.#isBlurred) return;
      const simulated = this.#simulated.live(key, now)?.value;
      expect(type, key).toBe(typeOf(simulated));
      if (type === "string") expect(toTheMs(value)).toBe(toTheMs(String(simulated)));
      expect(Math.abs(leftMs - this.#simulated.remaining(key, now))).toBeLessThanOrEqual(
        this.#blurMs,
      );
    }
  }

  #request(each: Entry, times: LockTimes, now: number): Request {
    const { key, ownerId, id, fingerprint, answer, cooldownMs, expiresInMs } = each;
    const submission = { id, fingerprint };
    return {
      command: { key: this.#name(key), ownerId, times, holder: "web-1%3A7", submission },
      record: `1${fingerprint}${ownerId}${answer}`,
      expiresAtMs: now + expiresInMs,
      cooldownUntilMs: cooldownMs === undefined ? 0 : now + cooldownMs,
      onlyLooks: false,
      id: each.freeId ?? ownerId,
      by: "an%20admin",
      reason: "a%20test",
      now: each.deletesNow,
      deadlineMs: undefined,
      answer() {},
    };
  }

  #compare(simulated: unknown, real: unknown, headLength: number): void {
    if (!Array.isArray(real) || !Array.isArray(simulated)) {
      expect(kindOf(simulated)).toEqual(kindOf(real));
      return;
    }
    expect(simulated).toHaveLength(real.length);
    for (const [index, code] of real.entries()) {
      const other = simulated[index];
      const [, life, value] = inspected.exec(String(code)) ?? [];
      const [, otherLife, otherValue] = inspected.exec(String(other)) ?? [];
      if (life !== undefined && otherLife !== undefined) {
        expect(toTheMs(otherValue)).toBe(toTheMs(value));
        expect(Math.abs(Number(life) - Number(otherLife))).toBeLessThanOrEqual(this.#blurMs);
        continue;
      }
      const isLife = typeof code === "number" && (code > 1 || (code <= -1_000 && code > -1e15));
      if (isLife && index >= headLength)
        expect(Math.abs(code - other)).toBeLessThanOrEqual(this.#blurMs);
      else expect(kindOf(other)).toEqual(kindOf(code));
    }
  }

  async #learnBlur(now: number): Promise<void> {
    this.#blurMs = Math.max(this.#blurMs, (await this.#nowMs()) - now + 2);
  }

  /** What happened at the time at which something runs out is not compared, nor what follows. */
  #blurAt(now: number, times: readonly number[]): void {
    const isClose = (at: number) => Math.abs(at - now) <= this.#blurMs;
    this.#isBlurred ||= [...this.#expiries].some(isClose) || times.some(isClose);
  }

  async #nowMs(): Promise<number> {
    const [seconds, micros] = await redis.time();
    return Number(seconds) * 1_000 + Math.floor(Number(micros) / 1_000);
  }

  #name(key: string): string {
    const name = `simulated:${this.#prefix}:${key}`;
    this.#names.add(name);
    return name;
  }

  #recordName(lock: string, id: string): string {
    const name = `{${lock}}:${id}`;
    this.#names.add(name);
    return name;
  }
}

/** What inspect gives: a life and a value. */
const inspected = /^(-1|\d+):(.*)$/s;

/** Only the tokens of a reply tell the microseconds of a script: those of a tombstone differ. */
function toTheMs(value: string | null | undefined): string | undefined {
  return value?.replace(/^(freed:[^:]+:[^:]+:\d{13})\d{3}:/, "$1:");
}

function asError(error: unknown): Error {
  if (error instanceof Error && error.name === "ReplyError") return error;
  throw error;
}

/** Of an error its code: what follows names the script by its hash. */
function kindOf(reply: unknown): unknown {
  return reply instanceof Error ? `error ${reply.message.split(" ")[0]}` : reply;
}
