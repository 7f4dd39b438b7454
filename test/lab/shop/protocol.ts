import type { LostReason, RedisStoreOptions, SubmitLockOptions } from "../../../src/index.ts";
import type { ClientName } from "../laboratory.ts";

/** How a service gets to Redis. */
export type Target =
  | { readonly kind: "single"; readonly port: number }
  | { readonly kind: "sentinel"; readonly ports: readonly number[]; readonly name: string }
  | { readonly kind: "cluster"; readonly ports: readonly number[] };

/** What a service is told when it starts. */
export interface Settings {
  /** As in the table of frameworks. */
  readonly framework: string;
  readonly redisClient: ClientName;
  readonly target: Target;
  readonly times: Partial<Omit<SubmitLockOptions, "store">>;
  readonly store?: RedisStoreOptions;
  readonly idempotency?: boolean;
  /** It tells every 10 ms until when it believes to hold each lock. */
  readonly tellsBelief?: boolean;
}

/** What a process holds on to at a moment. */
export interface Vitals {
  /** After a garbage collection. */
  readonly heapBytes: number;
  readonly externalBytes: number;
  /** Active timers, sockets and so on, by their kind. */
  readonly resources: Readonly<Record<string, number>>;
  /** Listeners on the Redis client. */
  readonly clientListeners: number;
  /** The most listeners on any one socket that the process has open. */
  readonly socketListeners: number;
  readonly requestsUnderWay: number;
}

/** What a service tells its parent. Times are those of {@link now}. */
export type FromService =
  | { readonly port: number }
  | {
      readonly begun: string;
      readonly user: string;
      readonly order: string | undefined;
      readonly fencingToken: number | undefined;
      readonly askedAt: number;
      readonly at: number;
    }
  /** The work had its effect or, with `lost`, its lease was lost. */
  | { readonly ended: string; readonly at: number; readonly lost?: LostReason }
  /** Until when each lease is valid, as far as its holder knows at the moment. */
  | { readonly believed: readonly (readonly [ownerId: string, until: number])[] }
  | { readonly uncaught: string }
  | { readonly vitals: Vitals }
  | { readonly drained: true };

export interface ToService {
  readonly ask: "vitals";
}

/** A monotonic clock that all processes of a machine share, in milliseconds. */
export function now(): number {
  return Number(process.hrtime.bigint()) / 1e6;
}

export function megabytes({ heapBytes, externalBytes }: Vitals): number {
  return (heapBytes + externalBytes) / 1e6;
}
