import fc from "fast-check";
import type { Redis } from "ioredis";
import { expect } from "vitest";
import type { LockCommand, LockTimes } from "../../../../src/lock/store.ts";
import {
  acquireCommand,
  acquireOnceCommand,
  lookUpCommand,
} from "../../../../src/stores/redis/commands/acquire.ts";
import type { Command } from "../../../../src/stores/redis/commands/command.ts";
import { completeCommand, recordCommand } from "../../../../src/stores/redis/commands/complete.ts";
import {
  forgetCommand,
  freeCommand,
  inspectCommand,
} from "../../../../src/stores/redis/commands/on-call.ts";
import {
  extendCommand,
  releaseCommand,
  tellCommand,
} from "../../../../src/stores/redis/commands/release.ts";
import { touchScript } from "../../../../src/stores/redis/replicas.ts";
import { replyOf } from "../network/command-queues.ts";
import { runScript, sha1hex } from "./script-runner.ts";
import { Keys, nobody } from "./simulated-redis.ts";

/** Stands for the id of a key that holds no text: the SHA-1 of the key's name. */
const idOfName = "the name";

const owners = [1, 2, 3].map((digit) => `0000000${digit}-0000-4000-8000-00000000000${digit}`);
/** Its value is nothing else. */
export const ownerOf01 = "00000001-0000-4000-8000-000000000009";
// A hyphen has a meaning in Lua's patterns.
const submissions = ["first-".padEnd(22, "-"), "second".padEnd(22, "0")];
const fingerprints = ["-".repeat(22), "A".repeat(22), "B".repeat(22)];

/** One of those that a command is for. */
export const entry = fc.record({
  key: fc.constantFrom("k1", "k2", "k3"),
  ownerId: fc.constantFrom(...owners),
  id: fc.constantFrom(...submissions),
  fingerprint: fc.constantFrom(...fingerprints),
  answer: fc.constantFrom('=000009{"s":201}', '=00000e{"s":201,"b":6}3 €'),
  /** The run that a look waits for, and how long what a run tells is there. */
  run: fc.constantFrom("", ...owners),
  toldMs: fc.constantFrom(60, 20_000),
  /** Of a record, from now on. */
  expiresInMs: fc.constantFrom(20_000, 25_000, 60, -60),
  cooldownMs: fc.constantFrom(undefined, 60, 20_000, -60, 3_600_000),
  /** Whom a free is about; `undefined` for the owner id. */
  freeId: fc.constantFrom(undefined, undefined, "00000001", sha1hex("old").slice(0, 8), idOfName),
  deletesNow: fc.constantFrom(false, false, false, true),
});

type Entry = typeof entry extends fc.Arbitrary<infer Made> ? Made : never;

/** What the commands are told of an entry: more than any of them asks for. */
interface Request {
  readonly command: LockCommand;
  readonly record: string;
  readonly expiresAtMs: number;
  readonly cooldownUntilMs: number;
  readonly onlyLooks: boolean;
  readonly told: { readonly record: string; readonly lifeMs: number };
  readonly waitsFor: string;
  /** Of a forget: an owner id, as of a look. */
  readonly run: string;
  /** Of a free. */
  readonly id: string;
  readonly by: string;
  readonly reason: string;
  readonly now: boolean;
  deadlineMs: number | undefined;
  answer(): void;
}

/** Every script that the store sends, by a name that a step can choose. */
const everyCommand: Record<string, Command<Request, unknown>> = {
  acquire: acquireCommand,
  acquireOnce: acquireOnceCommand,
  lookUp: lookUpCommand,
  tell: tellCommand,
  extend: extendCommand,
  release: releaseCommand,
  complete: completeCommand,
  record: recordCommand,
  inspect: inspectCommand,
  free: freeCommand,
  forget: forgetCommand,
  touch: touchOf(({ command }) => command.key),
  touchRecord: touchOf(({ command }, recordKey) => recordKey(command)),
};

/** As a wait for replicas writes it, of a lock or of a record. */
function touchOf(
  keyOf: (request: Request, recordKey: (of: LockCommand) => string) => string,
): Command<Request, unknown> {
  const add: Command<Request, unknown>["add"] = (request, keys, args, recordKey) => {
    keys.push(keyOf(request, recordKey));
    args.push(request.command.ownerId);
  };
  return { script: touchScript, head: () => [], add, read: () => undefined };
}

const adoptMs = 60_000;
const windowMs = 2_000;

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
export class ServerPair {
  readonly #real: Redis;
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

  constructor(real: Redis, prefix: string) {
    this.#real = real;
    this.#prefix = prefix;
    const remember = (_key: string, _value: string, expiresAt?: number) => {
      if (expiresAt !== undefined) this.#expiries.add(expiresAt);
    };
    this.#simulated = new Keys({ ...nobody, set: remember, lengthened: remember });
  }

  async call(
    name: string,
    entries: readonly Entry[],
    { inMs, lifeMs, floorInMs }: { inMs: number; lifeMs: number; floorInMs: number },
  ): Promise<void> {
    const command = everyCommand[name] as Command<Request, unknown>;
    const before = await this.#nowMs();
    const times: LockTimes = {
      ttlMs: lifeMs,
      maxHoldMs: adoptMs,
      acquireTimeoutMs: windowMs / 2,
      commandTimeoutMs: 100,
    };
    const requests = entries
      .slice(0, command.maxEntries ?? 100)
      .map((each) => this.#request(each, times, before));
    const [first] = requests as [Request];
    const floorUs = (before + floorInMs) * 1_000;
    const keys: string[] = [];
    const settings = { command: first.command, deadlineMs: before + inMs, floorUs };
    const args = command.head?.(settings) ?? [];
    for (const request of requests) {
      command.add(request, keys, args, (of) => this.#recordName(of.key, of.submission?.id ?? ""));
    }
    const real = await this.#real
      .eval(command.script, keys.length, ...keys, ...args.map(String))
      .catch(asError);
    // Of a call that failed nobody knows when: it did nothing that depends on the time.
    const now = Array.isArray(real) ? (real[0] as number) : before;
    // A token is the time in microseconds, unless the floor is above it.
    const token = Array.isArray(real) && command.headLength === 2 ? (real[1] as number) : 0;
    const nowUs = Math.floor(token / 1_000) === now ? token : now * 1_000;
    await this.#blurAt(now, [...requests.map(({ expiresAtMs }) => expiresAtMs), before + inMs]);
    if (this.#isBlurred) return;
    const { script } = command;
    const memory = this.#isFull ? "full" : "enough";
    const evaluation = { script, keyNames: keys, args, nowUs, memory } as const;
    const { error, value } = replyOf(() => runScript(this.#simulated, evaluation));
    this.#compare(error ?? value, real, command.headLength ?? 1);
  }

  async plant({ key, id }: Entry, at: "lock" | "record", value: string): Promise<void> {
    const wasFull = this.#isFull;
    await this.fill(false);
    const lock = this.#name(key);
    const name = at === "lock" ? lock : this.#recordName(lock, id);
    await this.#real.del(name);
    if (value === "a list") await this.#real.rpush(name, "element");
    else await this.#real.set(name, value);
    this.#simulated.set(name, value === "a list" ? ["element"] : value, undefined);
    await this.fill(wasFull);
  }

  async lengthen({ key }: Entry, lifeMs: number): Promise<void> {
    const name = this.#name(key);
    const now = await this.#nowMs();
    const isThere = (await this.#real.pexpireat(name, now + lifeMs)) === 1;
    await this.#blurAt(now);
    if (!this.#isBlurred) expect(this.#simulated.expire(name, now, now + lifeMs)).toBe(+isThere);
  }

  async fill(isFull: boolean): Promise<void> {
    if (isFull === this.#isFull) return;
    this.#isFull = isFull;
    await this.#real.config("SET", "maxmemory", isFull ? "1" : "0");
  }

  async compareKeys(): Promise<void> {
    for (const key of this.#names) {
      const [now, type, value, leftMs] = (await this.#real.eval(look, 1, key)) as Look;
      await this.#blurAt(now);
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
    const { key, ownerId, id, fingerprint, answer, cooldownMs, expiresInMs, run, toldMs } = each;
    const submission = { id, fingerprint };
    const record = `1${fingerprint}${ownerId}${answer}`;
    return {
      command: { key: this.#name(key), ownerId, times, holder: "web-1%3A7", submission },
      record,
      told: { record, lifeMs: toldMs },
      waitsFor: run,
      run: run || ownerId,
      expiresAtMs: now + expiresInMs,
      cooldownUntilMs: cooldownMs === undefined ? 0 : now + cooldownMs,
      onlyLooks: false,
      id: each.freeId === idOfName ? sha1hex(this.#name(key)) : (each.freeId ?? ownerId),
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
        // The id of a foreign value is also of the moment at which it expires, which is blurred.
        const comparable = (text = "") =>
          life === "-1" ? text : text.replace(/^(foreign|other):[0-9a-f]{40}/, "$1");
        expect(toTheMs(comparable(otherValue))).toBe(toTheMs(comparable(value)));
        expect(Math.abs(Number(life) - Number(otherLife))).toBeLessThanOrEqual(this.#blurMs);
        continue;
      }
      // The holder of the same submission, and the life of its lock.
      const [holder, held] = [String(code).slice(0, 37), String(code).slice(37)];
      if (/^s[0-9a-f-]{36}\d+$/.test(String(code))) {
        expect(String(other).slice(0, 37)).toBe(holder);
        const differs = Math.abs(Number(held) - Number(String(other).slice(37)));
        expect(differs).toBeLessThanOrEqual(this.#blurMs);
        continue;
      }
      const isLife = typeof code === "number" && (code > 1 || (code <= -1_000 && code > -1e15));
      if (isLife && index >= headLength)
        expect(Math.abs(code - other)).toBeLessThanOrEqual(this.#blurMs);
      else expect(kindOf(other)).toEqual(kindOf(code));
    }
  }

  /** What happened at the time at which something runs out is not compared, nor what follows. */
  async #blurAt(now: number, times: readonly number[] = []): Promise<void> {
    this.#blurMs = Math.max(this.#blurMs, (await this.#nowMs()) - now + 2);
    const isClose = (at: number) => Math.abs(at - now) <= this.#blurMs;
    this.#isBlurred ||= [...this.#expiries].some(isClose) || times.some(isClose);
  }

  async #nowMs(): Promise<number> {
    const [seconds, micros] = await this.#real.time();
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
