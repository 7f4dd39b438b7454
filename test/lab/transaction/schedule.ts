import { Random } from "../simulation/time/random.ts";

export const subjects = [
  "submissions.once",
  "the snippet of before",
  "a plain unique key",
] as const;
export type Subject = (typeof subjects)[number];

export type DatabaseName = "PostgreSQL" | "MariaDB" | "MySQL";

export interface Settings {
  readonly database: DatabaseName;
  readonly url: string;
  readonly redisPort: number;
  readonly providerPort: number;
}

/** What befalls a process at one of its points. `cut` breaks its connection with the database. */
export type Blow = "kill" | "stop" | "cut" | "throw";

const redisStates = [
  "up",
  "away",
  "away in the middle",
  "paused",
  "emptied",
  "restarted empty",
] as const;

/** One customer who wants one order, and what befalls the shop meanwhile. */
export interface Schedule {
  readonly seed: number;
  readonly processes: 1 | 2;
  /** Clicks at once; each goes to one of the processes. */
  readonly clicks: number;
  /** The click to which the blow is dealt, at which of its points; `undefined` for none. */
  readonly blow:
    | { readonly kind: Blow; readonly click: number; readonly point: number }
    | undefined;
  readonly redis: (typeof redisStates)[number];
  readonly isolation: "READ COMMITTED" | "REPEATABLE READ" | "SERIALIZABLE";
  /** Milliseconds between two clicks. */
  readonly betweenMs: number;
}

/** More than any run of a handler passes: then the blow falls behind the answer. */
const lastPoint = 24;

export function scheduleOf(seed: number): Schedule {
  const random = new Random(seed);
  const clicks = random.pick([1, 2, 3]);
  const kinds = ["kill", "kill", "kill", "stop", "cut", "throw", undefined] as const;
  const kind = random.pick<Blow | undefined>(kinds);
  const point = Math.floor(random.between(0, lastPoint + 1));
  return {
    seed,
    clicks,
    blow: kind && { kind, click: Math.floor(random.between(0, clicks)), point },
    processes: random.pick([1, 2] as const),
    redis: random.pick(redisStates),
    isolation: random.pick(["READ COMMITTED", "REPEATABLE READ", "SERIALIZABLE"] as const),
    betweenMs: random.pick([0, 0, 5, 40]),
  };
}
