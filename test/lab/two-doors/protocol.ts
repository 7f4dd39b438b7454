/** A call of one door, which stops before each step until it is told to go on. */
export interface DoorCall {
  readonly payment: string;
  /** Whether the order's table has a unique key on the payment. */
  readonly isUnique: boolean;
  /** Steps before which it does not stop. */
  readonly goes: readonly Step[];
}

/** A call, or to go on behind a stop. */
export type ToDoor = DoorCall | { readonly goOn: true };

/** The steps of a call that has the lock. */
export const steps = ["commit", "return", "record"] as const;
export type Step = (typeof steps)[number];

export type FromDoor =
  | { readonly at: Step }
  | { readonly order: string }
  | { readonly failed: string };
