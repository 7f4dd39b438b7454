import { createHash } from "node:crypto";
import {
  compileLua,
  LuaError,
  type LuaObject,
  type LuaProgram,
  type LuaValue,
  library,
  table,
} from "./lua.ts";
import type { Keys } from "./simulated-redis.ts";

/**
 * What a server without memory to spare refuses. Redis looks when a script begins to write: whatever
 * follows a first write that needs no memory goes through. A stricter engine looks at every write.
 */
export type Memory = "enough" | "full" | "strictly full";

/** What a script is run with. */
interface Evaluation {
  readonly script: string;
  readonly keyNames: readonly string[];
  readonly args: readonly (string | number | Uint8Array)[];
  /** The server's wall clock, in whole microseconds. It stands still while a script runs. */
  readonly nowUs: number;
  readonly memory: Memory;
  /** While a Cluster moves the slots: the keys that the other node has. */
  readonly moved?: Set<string> | undefined;
}

const wrongType = error("WRONGTYPE Operation against a key holding the wrong kind of value");
const outOfMemory = error("OOM command not allowed when used memory > 'maxmemory'.");

const elsewhere = error("ERR Script attempted to access a non local key in a cluster node");

const programs = new Map<string, LuaProgram>();

function programOf(script: string): LuaProgram {
  let program = programs.get(script);
  if (program === undefined) {
    program = compileLua(script);
    programs.set(script, program);
  }
  return program;
}

export function runScript(keys: Keys, evaluation: Evaluation): unknown {
  const { script, keyNames, args } = evaluation;
  const commands = new Commands(keys, evaluation);
  const pcall = (name: string, ...given: LuaValue[]) => commands.run(name, given);
  const call = (name: string, ...given: LuaValue[]) => {
    const reply = pcall(name, ...given);
    const text = errorOf(reply);
    if (text !== undefined) throw new ReplyError(text);
    return reply;
  };
  try {
    const reply = programOf(script)({
      ...library,
      KEYS: table([...keyNames]),
      ARGV: table(args.map(String)),
      redis: { call, pcall, sha1hex, REDIS_VERSION_NUM: 0x07_02_04 },
    });
    return toReply(reply);
  } catch (failure) {
    if (failure instanceof LuaError) throw new ReplyError(`ERR user_script: ${failure.message}`);
    throw failure;
  }
}

export function sha1hex(text: string): string {
  return createHash("sha1").update(text).digest("hex");
}

/** As ioredis names what the server itself said. */
export class ReplyError extends Error {
  override readonly name = "ReplyError";
}

/** The commands that the scripts use, each with the arguments that they use. */
class Commands {
  readonly #keys: Keys;
  readonly #nowUs: number;
  readonly #memory: Memory;
  readonly #moved: Set<string> | undefined;
  readonly #declared: readonly string[];
  readonly #deleted = new Set<string>();
  #wrote = false;

  constructor(keys: Keys, { nowUs, memory, moved, keyNames }: Evaluation) {
    this.#keys = keys;
    this.#nowUs = nowUs;
    this.#memory = memory;
    this.#moved = moved;
    this.#declared = keyNames;
  }

  run(name: string, given: readonly LuaValue[]): LuaValue {
    const args = given.map(asArgument);
    const [key = ""] = args;
    const now = Math.floor(this.#nowUs / 1_000);
    if (this.#moved === undefined || name === "TIME") return this.#run(name, args, now);
    const view = this.#viewOf(key, now);
    if (view === "refused") return elsewhere;
    if (view === "not seen") return this.#asIfAbsent(name, args, now);
    const wasThere = this.#keys.live(key, now) !== undefined;
    const reply = this.#run(name, args, now);
    // What is new while its slot moves is the other node's.
    if (name === "SET" && !wasThere && errorOf(reply) === undefined) this.#moved.add(key);
    return reply;
  }

  /**
   * While the slots move. A call is executed where its declared key is, or by the other node where
   * that is nowhere: as `ASK` says. A key that is not declared is refused here unless it is here. The
   * other node, asked after an `ASKING`, refuses nothing, and does not see what is here.
   */
  #viewOf(key: string, now: number): "seen" | "not seen" | "refused" {
    const isHere = (one: string) =>
      this.#keys.live(one, now) !== undefined && this.#moved?.has(one) === false;
    const [first] = this.#declared;
    if (this.#declared.includes(key)) return "seen";
    if (first === undefined || isHere(first)) return isHere(key) ? "seen" : "refused";
    return isHere(key) ? "not seen" : "seen";
  }

  #asIfAbsent(name: string, args: readonly string[], now: number): LuaValue {
    const [key = "", value = "", , life, condition] = args;
    switch (name) {
      case "GET":
        return false;
      case "PTTL":
        return -2;
      case "SET":
        if (condition === "XX") return false;
        // A second key, in the place of the first.
        this.#keys.set(key, value, now + Number(life));
        return { ok: "OK" };
      default:
        return 0;
    }
  }

  #run(name: string, args: readonly string[], now: number): LuaValue {
    const [key = "", value = ""] = args;
    switch (name) {
      case "TIME":
        return table([String(Math.floor(this.#nowUs / 1e6)), String(this.#nowUs % 1e6)]);
      case "GET":
        return this.#get(key, now);
      case "PTTL":
        return this.#keys.remaining(key, now);
      case "SET":
        return this.#set(args, now);
      case "PEXPIRE":
        this.#wrote = true;
        if (!wholeNumber(value)) return notWhole;
        if (args[2] === "LT" && !this.#endsAfter(key, now, Number(value))) return 0;
        return this.#keys.expire(key, now, now + Number(value));
      case "DEL":
        this.#wrote = true;
        return this.#delete(key, now);
      default:
        throw new Error(`the simulated Redis has no command ${name}`);
    }
  }

  /** Whether the key lives for longer, or without an end. */
  #endsAfter(key: string, now: number, lifeMs: number): boolean {
    const left = this.#keys.remaining(key, now);
    return left === -1 || left > lifeMs;
  }

  #get(key: string, now: number): LuaValue {
    const value = this.#keys.live(key, now)?.value;
    if (value === undefined) return false;
    return typeof value === "string" ? value : wrongType;
  }

  #delete(key: string, now: number): 0 | 1 {
    const deleted = this.#keys.delete(key, now);
    if (deleted === 1 && this.#moved !== undefined) this.#deleted.add(key);
    return deleted;
  }

  #set([key = "", value = "", ...options]: readonly string[], now: number) {
    const isRefused = this.#memory === "strictly full" || !this.#wrote;
    if (this.#memory !== "enough" && isRefused) return outOfMemory;
    if (this.#deleted.has(key)) return elsewhere;
    this.#wrote = true;
    const [unit, life = "", condition] = options;
    if (options.join(" ") === "XX KEEPTTL") return replaced(this.#keys, key, value, now);
    if (unit !== "PX" || !["NX", "XX", undefined].includes(condition)) {
      throw new Error("only SET … PX …, with NX or XX, and SET … XX KEEPTTL are simulated");
    }
    if (!wholeNumber(life)) return notWhole;
    if (Number(life) <= 0) return error("ERR invalid expire time in 'set' command");
    const isThere = this.#keys.live(key, now) !== undefined;
    if (condition !== undefined && isThere === (condition === "NX")) return false;
    this.#keys.set(key, value, now + Number(life));
    return { ok: "OK" };
  }
}

/** `SET … XX KEEPTTL` */
function replaced(keys: Keys, key: string, value: string, now: number): LuaValue {
  const entry = keys.live(key, now);
  if (entry === undefined) return false;
  keys.set(key, value, entry.expiresAt);
  return { ok: "OK" };
}

const notWhole = error("ERR value is not an integer or out of range");

function wholeNumber(text: string): boolean {
  return /^-?\d{1,18}$/.test(text);
}

/** As Redis takes the arguments of a command: anything but a string or a number is an error. */
function asArgument(value: LuaValue): string {
  if (typeof value === "string") return value;
  if (typeof value === "number" && Number.isSafeInteger(value)) return String(value);
  if (typeof value === "number") throw new Error(`how Redis writes ${value} is not simulated`);
  throw new LuaError("Lua redis lib command arguments must be strings or integers");
}

function error(err: string): LuaObject {
  return { err };
}

function errorOf(value: LuaValue): string | undefined {
  if (typeof value !== "object" || Array.isArray(value)) return undefined;
  const { err } = value;
  return typeof err === "string" ? err : undefined;
}

/** As Redis converts: numbers lose their fraction, false becomes null, and a nil ends an array. */
function toReply(value: LuaValue): unknown {
  const text = errorOf(value);
  if (text !== undefined) throw new ReplyError(text);
  return converted(value);
}

function converted(value: LuaValue): unknown {
  if (Array.isArray(value)) {
    const end = value.indexOf(undefined, 1);
    return value.slice(1, end < 0 ? undefined : end).map(converted);
  }
  const text = errorOf(value);
  if (text !== undefined) return new ReplyError(text);
  if (typeof value === "number") return Math.trunc(value);
  if (value === false || value === undefined) return null;
  return value === true ? 1 : value;
}
