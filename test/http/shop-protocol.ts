/** What a shop in a process of its own tells its parent. */
export type FromShop =
  | { readonly port: number }
  /** `running`: how many orders of this user run now, this one included. */
  | { readonly started: string; readonly running: number };

export interface ToShop {
  /** The order that may come to its end. */
  readonly finish: string;
}
