/** How orders come to Redis. */
export interface Way {
  /** The page of sizing says what it stands for. */
  readonly name: string;
  readonly connections: number;
  /** How many orders each connection has under way; without it they come at random times. */
  readonly callers?: number;
  readonly perSecond?: number;
  readonly seconds: number;
}

// Short: what is kept of each takes memory until the end.
export const gathered: Way = {
  name: "gathered",
  connections: 1,
  callers: 256,
  seconds: 0.5,
};

export const ways: readonly Way[] = [
  {
    name: "apart",
    connections: 64,
    perSecond: 1_000,
    seconds: 2,
  },
  { name: "busy", connections: 64, callers: 1, seconds: 1.5 },
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
