import type { SimulatedRedis } from "../server/simulated-redis.ts";
import type { EventLoop, Machine } from "../time/event-loop.ts";
import type { Delays } from "./connection.ts";
import type { SimulatedClient } from "./simulated-client.ts";

/** What becomes of one command, chosen by the schedule. */
export interface CommandFate extends Delays {
  /** The client loses its connection this long after the write. */
  readonly resetMs: number | undefined;
  /** What was written before that lands at the server nevertheless. */
  readonly stillLands: boolean;
  /** The answer is replaced by something that is none. */
  readonly oddAnswer: boolean;
}

/** What the clients of one process share: their network, and who watches it. */
export interface Surroundings {
  readonly loop: EventLoop;
  readonly machine: Machine;
  readonly server: SimulatedRedis;
  readonly latency: () => number;
  /** The network of this process stands still until then. */
  readonly cutOffUntil: () => number;
  readonly nextFate: (client: SimulatedClient, command: ScriptCall) => CommandFate | undefined;
  readonly watcher: ClientWatcher;
  /** Every client of this process that is not ended. */
  readonly clients: Set<SimulatedClient>;
}

export interface ClientWatcher {
  /** A script is about to be written. */
  writes(client: SimulatedClient, script: string, keys: readonly string[]): void;
  executes(copy: WrittenCopy, run: () => unknown): unknown;
  /** An answer of the server is read. */
  reads(): void;
  /** A command, or the connection, is in trouble from now on; call the result when that is over. */
  troubled(): () => void;
  connected(client: SimulatedClient): void;
  closed(client: SimulatedClient): void;
}

export interface ScriptCall {
  readonly script: string;
  /** What it is about. */
  readonly keys: readonly string[];
  /** Those of them that the call declares. */
  readonly declared: readonly string[];
  readonly args: readonly (string | number | Uint8Array)[];
}

/** One write of a command, as the server gets it. */
export interface WrittenCopy extends ScriptCall {
  /** When its command was first written: a copy that is sent again is as old as that. */
  readonly sentAt: number;
}

/** The options of ioredis that matter to a lock. */
export interface ClientOptions {
  readonly autoResendUnfulfilledCommands: boolean;
  readonly enableOfflineQueue: boolean;
  readonly maxRetriesPerRequest: number;
  readonly commandTimeout: number | undefined;
  readonly connectTimeout: number;
  readonly retryStrategy: (times: number) => number;
  /** How long the other end may take to say goodbye, too. */
  readonly disconnectTimeout: number;
  readonly isCluster: boolean;
  /** The database that every connection begins with. */
  readonly db: number;
}

/** The defaults of ioredis that matter to a lock; the retry strategy is that of ioredis 5. */
export const ioredisDefaults: ClientOptions = {
  autoResendUnfulfilledCommands: true,
  enableOfflineQueue: true,
  maxRetriesPerRequest: 20,
  commandTimeout: undefined,
  connectTimeout: 10_000,
  retryStrategy: (times) => Math.min(50 * times, 2_000),
  disconnectTimeout: 2_000,
  isCluster: false,
  db: 0,
};

/** What a client is duplicated with, and what a Cluster is. */
export type DuplicateOptions =
  | [options: Partial<ClientOptions>]
  | [nodes: readonly never[], options: ClusterOptions];

interface ClusterOptions {
  readonly redisOptions: Partial<ClientOptions>;
  readonly clusterRetryStrategy: ClientOptions["retryStrategy"];
}

/** Those of one node, whatever they were given for. */
export function nodeOptions(given: DuplicateOptions): Partial<ClientOptions> {
  if (given.length === 1) return given[0];
  const { redisOptions, clusterRetryStrategy, ...common } = given[1];
  return { ...common, ...redisOptions, retryStrategy: clusterRetryStrategy };
}

/** A network without faults, and nobody who watches it. */
export function calm(loop: EventLoop, machine: Machine, server: SimulatedRedis): Surroundings {
  return {
    loop,
    machine,
    server,
    clients: new Set(),
    latency: () => 0.5,
    cutOffUntil: () => 0,
    nextFate: () => undefined,
    watcher: {
      writes() {},
      executes: (_copy, run) => run(),
      reads() {},
      troubled: () => () => {},
      connected() {},
      closed() {},
    },
  };
}
