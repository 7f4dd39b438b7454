import { hostname } from "node:os";
import { InvalidOptionError } from "../errors.ts";
import {
  checkMs,
  checkOptionNames,
  describe,
  drop,
  hasMembers,
  invalidOption,
  longestTtlMs,
} from "../validation.ts";
import { Seal, type SealOptions } from "./seal.ts";
import type { LockStore, LockTimes } from "./store.ts";
import { encodeKeyPart, mayBeInId } from "./submit-key.ts";

/** The options of a {@link SubmitLock}. Every time is a whole number of milliseconds. */
export interface SubmitLockOptions {
  /** Where the keys live: a `RedisStore`, a `MemoryStore` or your own {@link LockStore}. */
  readonly store: LockStore;
  /**
   * The life of the key: the longest that a user waits after a process died with the lock. 100 to
   * 300 000. @defaultValue 10 000, or the nearest that the other given times allow
   */
  readonly ttlMs?: number | undefined;
  /**
   * How long after its acquire a lease is extended at most. From `ttlMs` to 600 000; equal to
   * `ttlMs` means that a lease is never extended. @defaultValue the larger of 60 000 and `ttlMs`
   */
  readonly maxHoldMs?: number | undefined;
  /**
   * How long one attempt may take, all its requests included. 20 to `ttlMs` / 2.
   * @defaultValue the larger of 1 000 and twice a given `commandTimeoutMs`, but at most `ttlMs` / 2
   */
  readonly acquireTimeoutMs?: number | undefined;
  /**
   * How long a command may stay unanswered before it is sent again, on another connection. An
   * extend waits at least `ttlMs` / 15. Also the bound of `lookUp`. 10 to `acquireTimeoutMs` / 2.
   * @defaultValue the smaller of 200 and `acquireTimeoutMs` / 2
   */
  readonly commandTimeoutMs?: number | undefined;
  /**
   * The beginning of every key, before the user id. Shops on one Redis need different prefixes:
   * with one prefix, equal user ids are one user. 1 to 128 characters without whitespace, braces,
   * control or format characters. The last is a character that no encoded id has, such as `:`.
   * @defaultValue "lock:submit:"
   */
  readonly keyPrefix?: string | undefined;
  /**
   * Returns the key of a user, for a shop that moves here from a lock with keys of its own. A key
   * begins with `keyPrefix` (whose last character may then be any), has at most 512 bytes, and no
   * whitespace, braces, control or format characters. It is checked at each call. `check` and the
   * CLI also pass ids that are not users. **Different users need different keys: the shop must
   * ensure that**, because the lock cannot notice. If the client's prefix has a hash tag, no key
   * may be another key followed by `:` and more.
   * @param userId as text: `"42"` for `42`.
   * @defaultValue `keyPrefix` and the id, percent-encoded
   */
  readonly keyOf?: ((userId: string) => string) | undefined;
  /**
   * The holder's name, for a person who looks at a lock: written into the key's value, so never a
   * customer or a secret. At most 64 characters, `""` for none.
   * @defaultValue the host's name and the process id, such as `web-3:4711`
   */
  readonly holder?: string | undefined;
  /**
   * Encrypts kept answers and values (AES-256-GCM), and makes submissions' ids and fingerprints
   * HMACs, unless `idKey` is `false`. The user's id in the key, the holder's name and the lock's
   * times stay readable. @defaultValue none: plain bytes
   */
  readonly seal?: SealOptions | undefined;
}

type KeyOf = (userId: string) => string;

interface Resolved {
  readonly store: LockStore;
  readonly keyPrefix: string;
  readonly keyOf: KeyOf | undefined;
  readonly times: LockTimes;
  readonly holder: string;
  readonly seal: Seal | undefined;
}

export function resolveLockOptions(options: SubmitLockOptions): Resolved {
  const times = ["ttlMs", "maxHoldMs", "acquireTimeoutMs", "commandTimeoutMs"];
  const names = ["store", ...times, "keyPrefix", "keyOf", "holder", "seal"];
  checkOptionNames("SubmitLock", options, names);
  const keyPrefix = checkKeyPrefix(options.keyPrefix, options.keyOf);
  return {
    store: checkStore(options.store),
    keyPrefix,
    keyOf: options.keyOf === undefined ? undefined : checkedKeys(options.keyOf, keyPrefix),
    times: resolveTimes(options),
    holder: checkHolder(options.holder),
    seal: options.seal === undefined ? undefined : new Seal(options.seal),
  };
}

/**
 * Rule 11: a given value is kept, and defaults fit it: `{ maxHoldMs: 5_000 }` means a `ttlMs` of
 * 5 000. Only given values that are out of bounds or contradict each other are an error.
 */
function resolveTimes(options: SubmitLockOptions): LockTimes {
  // Given values are checked first, so that no default is derived from an invalid one.
  const given = {
    ttlMs: checkIfGiven("ttlMs", options.ttlMs, 100, longestTtlMs),
    maxHoldMs: checkIfGiven("maxHoldMs", options.maxHoldMs, 100, 600_000),
    acquireTimeoutMs: checkIfGiven("acquireTimeoutMs", options.acquireTimeoutMs, 20, 150_000),
    commandTimeoutMs: checkIfGiven("commandTimeoutMs", options.commandTimeoutMs, 10, 75_000),
  };
  const { acquireTimeoutMs: acquire = 0, commandTimeoutMs: command = 0 } = given;
  const longestTtl = Math.min(given.maxHoldMs ?? longestTtlMs, longestTtlMs);
  const ttlMs = given.ttlMs ?? clamp(10_000, Math.max(2 * acquire, 4 * command), longestTtl);
  const maxHoldMs = given.maxHoldMs ?? Math.max(60_000, ttlMs);
  checkMs("maxHoldMs", maxHoldMs, ttlMs, 600_000);
  const longestAcquire = Math.floor(ttlMs / 2);
  const acquireTimeoutMs = given.acquireTimeoutMs ?? clamp(1_000, 2 * command, longestAcquire);
  checkMs("acquireTimeoutMs", acquireTimeoutMs, 20, longestAcquire);
  const longestCommand = Math.floor(acquireTimeoutMs / 2);
  const commandTimeoutMs = given.commandTimeoutMs ?? Math.min(200, longestCommand);
  checkMs("commandTimeoutMs", commandTimeoutMs, 10, longestCommand);
  return { ttlMs, maxHoldMs, acquireTimeoutMs, commandTimeoutMs };
}

function checkIfGiven(name: string, value: unknown, min: number, max: number): number | undefined {
  return value === undefined ? undefined : checkMs(name, value, min, max);
}

// `max` wins over `min`: the check of the next option then names the value that does not fit.
function clamp(value: number, min: number, max: number): number {
  return Math.min(Math.max(value, min), max);
}

// \p{Cf} holds the invisible format characters, \p{Cs} lone surrogates.
const allowed = /^[^\s{}\p{Cc}\p{Cf}\p{Cs}]+$/u;

export const defaultKeyPrefix = "lock:submit:";

function checkKeyPrefix(keyPrefix: unknown = defaultKeyPrefix, keyOf: unknown): string {
  if (typeof keyPrefix !== "string" || keyPrefix.length > 128 || !allowed.test(keyPrefix)) {
    const expected = "1 to 128 characters without whitespace, braces, control or format characters";
    throw invalidOption("keyPrefix", expected, keyPrefix);
  }
  if (keyOf !== undefined || !mayBeInId.test(keyPrefix.slice(-1))) return keyPrefix;
  // User 42 of the prefix `shop1` and user 142 of the prefix `shop` would be one key.
  const expected = 'an end that no user id has in a key, such as ":"';
  throw invalidOption("keyPrefix", expected, keyPrefix);
}

function checkedKeys(keyOf: unknown, keyPrefix: string): KeyOf {
  if (typeof keyOf !== "function") throw invalidOption("keyOf", "a function", keyOf);
  return (userId) => {
    const key: unknown = keyOf(userId);
    // The message does not repeat the key, which names a person.
    let came = `a value of type ${typeof key}`;
    if (typeof key === "string") {
      const bytes = Buffer.byteLength(key);
      const isOurs = key.startsWith(keyPrefix);
      if (isOurs && bytes <= 512 && allowed.test(key)) return key;
      const fault = bytes > 512 ? "" : " with one of these characters";
      came = `${bytes} bytes${isOurs ? fault : " with another beginning"}`;
    }
    drop(key);
    const expected = `a key of at most 512 bytes that begins with keyPrefix (${describe(keyPrefix)}), without whitespace, braces, control or format characters`;
    throw new InvalidOptionError(`keyOf: expected ${expected}, got ${came}`);
  };
}

function checkHolder(holder: unknown = `${hostname().slice(0, 50)}:${process.pid}`): string {
  if (typeof holder !== "string" || holder.length > 64 || /[\p{Cc}\p{Cs}]/u.test(holder)) {
    throw invalidOption("holder", "at most 64 characters without control characters", holder);
  }
  return encodeKeyPart(holder);
}

function checkStore(store: unknown): LockStore {
  if (hasMembers(store, ["acquire", "extend", "release", "attach"])) return store as LockStore;
  const expected = "a LockStore such as new RedisStore(redis) or new MemoryStore()";
  const isClient = hasMembers(store, ["duplicate"]) || hasMembers(store, ["sendCommand"]);
  const came = isClient ? "a bare client: write store: new RedisStore(redis)" : describe(store);
  throw new InvalidOptionError(`store: expected ${expected}, got ${came}`);
}
