/** One rule of the protocol, broken by a change of the text. */
export interface Mutation {
  readonly name: string;
  /** The place in docs/internals/protocol.md: the number of the rule, or the script. */
  readonly rule: string;
  readonly file: string;
  /** Has to be there exactly once: a patch that no longer applies proves nothing. */
  readonly find: string;
  readonly replace: string;
  /** What has to be changed besides, in the same file. */
  readonly also?: { readonly find: string; readonly replace: string };
}
