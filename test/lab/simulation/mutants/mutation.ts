/** One rule of the protocol, broken by a change of the text. */
export interface Mutation extends Edit {
  readonly name: string;
  /** The place in docs/internals/protocol.md: the number of the rule, or the script. */
  readonly rule: string;
  /** Most seeds need more than 5,000 schedules to notice it. `--short` leaves it out. */
  readonly isRare?: true;
  /** A second change. */
  readonly also?: Edit;
}

/**
 * One change of `src`. Neither the file nor the formatting belongs to it, so that a mutant survives
 * when code moves.
 */
export interface Edit {
  /** The top-level declaration that has the text, where other declarations have it, too. */
  readonly in?: string;
  /** Has to be in `src` exactly once: a patch that no longer applies proves nothing. White space of any length is equal. */
  readonly find: string;
  readonly replace: string;
}

/** The line that decides whether an owner id is retired when its attempt has ended. */
export const retiredWhen = "if (isHeld || this.#inFlight.first !== undefined) {";
