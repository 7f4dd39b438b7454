/** What a server of the shop is told when it starts. */
export interface ServerSettings {
  /** One of `shopLocks`. */
  readonly lock: string;
  readonly redisPort: number;
  /** How far its clock is ahead of the others'. */
  readonly clockAheadMs: number;
}

/** One click. */
export interface Submit {
  readonly number: number;
  readonly user: string;
  readonly wish: string;
  readonly workMs: number;
}

/** Times are those of the clock that all processes of a machine share, in milliseconds. */
export type Answer = Placed | { readonly kind: "repeated" | "refused" | "died" };

/** The order was worked on, under the lock, from here to there. */
export interface Placed {
  readonly kind: "placed";
  readonly fromMs: number;
  readonly untilMs: number;
}

export type FromServer =
  | { readonly ready: true }
  | { readonly number: number; readonly answer: Answer };
