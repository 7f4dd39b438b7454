import type { Keys } from "./keys.ts";
import { compileLua, type LuaProgram, type LuaTable, type LuaValue } from "./lua.ts";

const wrongType = {
  err: "WRONGTYPE Operation against a key holding the wrong kind of value",
};

const programs = new Map<string, LuaProgram>();

function programOf(script: string): LuaProgram {
  let program = programs.get(script);
  if (program === undefined) {
    program = compileLua(script);
    programs.set(script, program);
  }
  return program;
}

/**
 * EVAL: runs the text of a script on the keys. Redis' clock stands still while a script runs.
 *
 * @param nowMs the server's wall clock; a fraction is cut off where Redis cuts it off.
 */
export function runScript(
  keys: Keys,
  nowMs: number,
  script: string,
  keyNames: readonly string[],
  args: readonly (string | number)[],
): unknown {
  const now = Math.floor(nowMs);
  const commands: Record<string, (...args: string[]) => LuaValue> = {
    TIME: () => table([String(Math.floor(now / 1000)), String((now % 1000) * 1000)]),
    GET: (key) => {
      const value = keys.live(key as string, now)?.value;
      if (value === undefined) return false;
      return typeof value === "string" ? value : wrongType;
    },
    SET: (key, value, unit, life, condition) => {
      if (unit !== "PX" || condition !== "NX") throw new Error("only SET … PX … NX is simulated");
      if (keys.live(key as string, now) !== undefined) return false;
      keys.set(key as string, value as string, now + Number(life));
      return { ok: "OK" };
    },
    PTTL: (key) => keys.remaining(key as string, now),
    PEXPIRE: (key, life) => keys.expire(key as string, now, now + Number(life)),
    DEL: (key) => keys.delete(key as string, now),
  };
  const call = (name: string, ...given: LuaValue[]): LuaValue => {
    const command = commands[name];
    if (command === undefined) throw new Error(`the simulated Redis has no command ${name}`);
    return command(...given.map(String));
  };
  const reply = programOf(script)({
    KEYS: table([...keyNames]),
    ARGV: table(args.map(String)),
    redis: { call, pcall: call },
    math: { floor: Math.floor },
    string: { find },
    tonumber: Number,
    type: luaType,
    ipairs: undefined,
  });
  const value = fromLua(reply);
  if (value instanceof ReplyError) throw value;
  return value;
}

/** As ioredis names what the server itself said. */
export class ReplyError extends Error {
  override readonly name = "ReplyError";
}

/** `string.find` of a plain text. */
function find(text: string, sought: string): LuaValue {
  const at = text.indexOf(sought);
  return at < 0 ? undefined : at + 1;
}

function table(values: readonly LuaValue[]): LuaTable {
  return [undefined, ...values];
}

function luaType(value: LuaValue): string {
  return value === undefined ? "nil" : typeof value === "object" ? "table" : typeof value;
}

/** As Redis converts: numbers lose their fraction, false becomes null. */
function fromLua(value: LuaValue): unknown {
  if (Array.isArray(value)) return value.slice(1).map(fromLua);
  if (typeof value === "number") return Math.trunc(value);
  if (value === false || value === undefined) return null;
  if (typeof value === "object" && typeof value["err"] === "string") {
    return new ReplyError(value["err"]);
  }
  return value === true ? 1 : value;
}
