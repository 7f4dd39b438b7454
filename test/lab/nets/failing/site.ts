import type { MemoryStore } from "../../../../src/index.ts";
import type { Framework } from "../../../http/frameworks.ts";
import type { AppParts, Turn } from "../../../http/turn.ts";
import type { Fault, Way } from "./fault.ts";

/**
 * What the client sees, and what becomes of the user's lock.
 *
 * - `error`: the framework's error handler gets the value, as if the handler had thrown it.
 * - `order`: the order is placed and answered, as without the fault.
 * - `bare`: the same as on the application without the guard.
 * - `any`: whatever the framework makes of it.
 * - `hangs`: no answer; once the client has left, nothing of it is left.
 * - `held`: nothing shows that the work is over, so the lock is held to `maxHoldMs`, and no longer.
 */
export type Outcome = "error" | "order" | "bare" | "any" | "hangs" | "held";

/** One foreign call, or one kind of them. */
export interface Site {
  readonly runsOn?: (framework: Framework) => boolean;
  readonly ways: readonly Way[];
  readonly outcome: (way: Way) => Outcome;
  /** What the order meets. @defaultValue a free user */
  readonly meets?: "nobody" | "a lock" | "no store" | "no key" | "other content" | "its answer";
  readonly times?: { readonly ttlMs: number; readonly maxHoldMs: number };
  store?(store: MemoryStore, fault: Fault): void;
  parts?(fault: Fault, framework: Framework): Partial<AppParts>;
  handler?(turn: Turn, fault: Fault): unknown;
  /** The first call within the handler is the first that may fail. @defaultValue false */
  readonly isInside?: boolean;
  /** Work may go on unseen behind the fault: the lock is held to `maxHoldMs`, and no longer. */
  readonly isUnseen?: true;
  /** The handler returns no promise. @defaultValue false */
  readonly isSync?: true;
  /** A channel on which it listens: Node.js makes an uncaught exception of what it throws. */
  readonly subscribes?: string;
  /** The answer may be left out of the record, so that a repeat runs. */
  readonly mayRunAgain?: true;
}

/** A function that is awaited. */
export const awaited: readonly Way[] = ["throws", "rejects", "never settles", "settles twice"];
/** A function that does something, and may be awaited. */
export const acting: readonly Way[] = ["throws", "rejects", "never settles", "acts twice"];
export const thrown: readonly Way[] = ["throws"];

export const place = (turn: Turn): void => turn.answer(201, { order: "placed" });

/** For programs in which a lock may be held to its `maxHoldMs`. */
export const short = { ttlMs: 400, maxHoldMs: 800 };

/** The same sites under other names. */
export function named<Value>(
  table: Readonly<Record<string, Value>>,
  name: (key: string) => string,
  site: (value: Value, key: string) => Site,
): Record<string, Site> {
  return Object.fromEntries(
    Object.entries(table).map(([key, value]) => [name(key), site(value, key)]),
  );
}
