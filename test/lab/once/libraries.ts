/** This package with its `idempotency`. */
export const submitLock: URL = new URL("./submit-lock.ts", import.meta.url);

/** The rows of the table, each a file that exports `library`. */
export const rows: readonly URL[] = [
  new URL("./plain.ts", import.meta.url),
  new URL("./lock-only.ts", import.meta.url),
  submitLock,
  new URL("./peers/express-idempotency.ts", import.meta.url),
  new URL("./peers/node-idempotency.ts", import.meta.url),
  new URL("./peers/node-idempotency-nest.ts", import.meta.url),
];
