import { setTimeout as sleep } from "node:timers/promises";
import type { SharedOptions } from "../../support/clients.ts";
import { command } from "../../support/command.ts";
import type { RedisProxy } from "../../support/proxy.ts";
import type { RedisServer } from "../../support/server-process.ts";

/** What a fault can reach. */
export interface FaultTarget {
  /** Between the caller and Redis; observer and rivals are not behind it. */
  readonly proxy: RedisProxy;
  /** Its own server, where the fault needs one. */
  readonly server: Pick<RedisServer, "port" | "pause" | "resume">;
  /** Whether a request is about the user's lock. */
  readonly isOurs: (argv: string[]) => boolean;
  /** The fault happens when the proxy says so. */
  whenStruck(struck: Promise<unknown>): void;
  /** Something that happens later in the cell, and is waited for at its end. */
  later(ms: number, what: () => unknown): void;
}

/** What the cells of a fault must show; bounds.ts has the numbers. */
type Expectation =
  | "acquired"
  | "unavailable"
  | "back in time"
  | "refused"
  | "released"
  | "recorded";

export interface Fault {
  readonly name: string;
  readonly what: string;
  /** Which command it hits. */
  readonly on: "acquire" | "release" | "extend" | "complete";
  readonly expect: Expectation;
  /** The word with which the server refuses. */
  readonly says?: string;
  /** Whether it disturbs the server itself, and so needs one of its own. */
  readonly ownServer?: true;
  readonly serverArgs?: readonly string[];
  /** Who the caller logs in as. */
  readonly login?: SharedOptions;
  /** The database of everybody in the cell; 0 by default. */
  readonly db?: number;
  /** Before the caller's connection is made. */
  prepare?(target: FaultTarget): Promise<unknown> | unknown;
  /** Just before the command that it hits is sent; the caller goes on when it has resolved. */
  strike(target: FaultTarget): Promise<unknown> | unknown;
  /** How long after the strike something may still come. */
  readonly watchMs: number;
  /** How long the caller works. */
  readonly holdMs?: number;
  /** How long after the strike nobody could have done what the command asks for. */
  readonly awayMs?: number;
  /** On complete: how long the record is kept, where that is not longer than the cell. */
  readonly retainMs?: number;
}

export const send = (target: FaultTarget, name: string, ...args: (string | number)[]) =>
  command(target.server.port, name, ...args);

/** How a fault strikes. */
export type Strike = Fault["strike"];

/** Set before the command is sent, it strikes when the command comes by. */
export const onTheWire =
  (trap: (proxy: RedisProxy, isOurs: FaultTarget["isOurs"]) => Promise<void>): Strike =>
  (target) =>
    target.whenStruck(trap(target.proxy, target.isOurs));

export const replyLost = (options: { resetAfterMs: number; deaf?: boolean }): Strike =>
  onTheWire((proxy, isOurs) => proxy.loseReplyOnce(isOurs, options));

export const held = (options: { releaseAfterMs: number; resetClientAfterMs?: number }): Strike =>
  onTheWire((proxy, isOurs) => proxy.holdRequestOnce(isOurs, options));

export const replyLate = (releaseAfterMs: number): Strike =>
  onTheWire((proxy, isOurs) => proxy.holdReplyOnce(isOurs, { releaseAfterMs }));

/** Redis cannot be reached for so long; the caller comes `callAfterMs` into it. */
export function unreachable(ms: number, callAfterMs: number): Strike {
  return async (target) => {
    await target.proxy.refuse(true);
    target.proxy.resetAll();
    target.later(ms, () => target.proxy.refuse(false));
    await sleep(callAfterMs);
  };
}

/** The server is stopped for so long; the caller comes `callAfterMs` into it. */
export function paused(ms: number, callAfterMs: number): Strike {
  return async (target) => {
    target.server.pause();
    target.later(ms, () => target.server.resume());
    await sleep(callAfterMs);
  };
}

/** The server is at its maxmemory for `refusalMs`. */
export async function fill(target: FaultTarget): Promise<void> {
  await send(target, "CONFIG", "SET", "maxmemory", 1);
  target.later(refusalMs, () => send(target, "CONFIG", "SET", "maxmemory", 0));
}

/** How long a server refuses; its own word, no imitation. */
export const refusalMs = 800;
/** Nobody listens there. */
const noMaster = ["127.0.0.1", "1"] as const;

export async function becomeReplica(
  target: FaultTarget,
  serveStaleData: "yes" | "no",
): Promise<void> {
  await send(target, "CONFIG", "SET", "replica-serve-stale-data", serveStaleData);
  await send(target, "REPLICAOF", ...noMaster);
  target.later(refusalMs, () => send(target, "REPLICAOF", "NO", "ONE"));
}
