/** How orders come to Redis. */
export interface Way {
  /** One word, and what it stands for. */
  readonly name: string;
  readonly connections: number;
  /** How many orders each connection has under way; without it they come at random times. */
  readonly callers?: number;
  readonly perSecond?: number;
  readonly seconds: number;
}

// Short: what is kept of each takes memory until the end.
export const gathered: Way = {
  name: "gathered: 1 connection, 256 at a time",
  connections: 1,
  callers: 256,
  seconds: 0.5,
};

export const ways: readonly Way[] = [
  {
    name: "apart: 1 000 a second over 64 connections",
    connections: 64,
    perSecond: 1_000,
    seconds: 2,
  },
  { name: "busy: 64 connections, one at a time each", connections: 64, callers: 1, seconds: 1.5 },
  gathered,
];

export const kinds = ["lock", "once"] as const;
export type Kind = (typeof kinds)[number];

/** What one order takes of Redis: its acquire, and its release or its record. */
export interface OrderCost {
  readonly calls: number;
  readonly processorMicros: number;
  readonly bytesIn: number;
  readonly bytesOut: number;
  readonly replicaBytes: number;
}

/** The length of the answer that is kept of an order with "once". */
export const answerBytes = 1_024;

/** What a lock takes in Redis while its order is under way. */
export interface LockMemory {
  /** `MEMORY USAGE` of one. */
  readonly usage: number;
  /** What Redis' memory has grown by, for each: also its tables. */
  readonly grown: number;
}
