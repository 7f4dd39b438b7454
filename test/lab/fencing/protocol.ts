import type { SubmitLockOptions } from "../../../src/index.ts";

export type Recipe = "epoch" | "token";

export interface HolderSettings {
  readonly name: string;
  readonly recipe: Recipe;
  readonly cart: string;
  /** Of Redis. */
  readonly port: number;
  readonly database: string;
  readonly times: Partial<Omit<SubmitLockOptions, "store">>;
}

/** `claim`: through the fence; `note`: beside it. */
export interface ToHolder {
  readonly write: "claim" | "note";
}

export type FromHolder =
  /** It has the lock. */
  | { readonly token: number | undefined; readonly epoch: number }
  /** It has written, and so many rows have changed. */
  | { readonly rows: number; readonly wasLost: boolean };
