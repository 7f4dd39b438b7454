import { InvalidOptionError, LockContendedError, TransactionRequiredError } from "../errors.ts";
import { describe, hasMembers } from "../validation.ts";

/**
 * Runs statements in one open transaction of the application. A `PoolClient` of pg, a `Transaction`
 * of PGlite, an `EntityManager` of TypeORM and a connection of mysql2 or mariadb can be passed
 * unchanged.
 */
export interface SqlExecutor {
  /** Resolves to rows that are objects: `{ rows }`, an array of rows, or `[rows, fields]`. */
  query(text: string, params: (string | number | null)[]): PromiseLike<unknown>;
}

/** The row of a submission. The value is read as text, so that no driver parses it. */
export interface SubmissionRow {
  readonly fingerprint: string | null;
  /** JSON; `""` for `undefined`, and `null` where no value was kept. */
  readonly value: string | null;
  /** How old the row is, in milliseconds, by the database's clock. */
  readonly age: string | number | bigint;
  /** On MySQL, the random name of the run that has inserted the row. */
  readonly run?: string;
}

export interface Dialect {
  readonly ddl: string;
  /** J1, J2: inserts the row and resolves to a token for `end`, or to the row that was there. */
  begin(tx: SqlExecutor, id: string, fingerprint: string | null): Promise<string | SubmissionRow>;
  /** Keeps the value, and proves that the transaction is still the one in which `token` was made. */
  end(tx: SqlExecutor, id: string, token: string, json: string | null): Promise<void>;
  find(db: SqlExecutor, id: string): Promise<SubmissionRow | undefined>;
  /** Deletes one batch, and resolves to whether there may be more. */
  prune(db: SqlExecutor, olderThanMs: number, batchSize: number): Promise<boolean>;
}

/** Finds the rows in a result. @throws InvalidOptionError (J9) for rows without these columns. */
export function rowsOf(result: unknown, columns: readonly string[]): Record<string, unknown>[] {
  const { rows = result } = Object(result);
  const list: unknown = Array.isArray(rows) && Array.isArray(rows[0]) ? rows[0] : rows;
  const came = Array.isArray(list) ? list.find((row) => !hasMembers(row, columns)) : list;
  if (came === undefined && list !== undefined) return list as Record<string, unknown>[];
  throw new InvalidOptionError(
    `tx: expected rows that are objects with ${columns.join(", ")}, got ${describe(came)}. Let query resolve to { rows }, to an array of rows or to [rows, fields], with the columns' names as they are`,
  );
}

/** Checks the rows of a select. @param more columns beside fingerprint, value and age. */
export function submissionsOf(result: unknown, more: readonly string[] = []): SubmissionRow[] {
  return textsOf(result, ["fingerprint", "value", ...more], ["age"]) as unknown as SubmissionRow[];
}

/** J9: this JSON text lets `begin` refuse a driver that parses JSON, before `work` is called. */
export const probe = `'{}' AS probe`;

/** Finds the rows. @throws InvalidOptionError (J9) for neither text nor NULL in a column of `texts`. */
export function textsOf(
  result: unknown,
  texts: readonly string[],
  others: readonly string[] = [],
): Record<string, unknown>[] {
  const rows = rowsOf(result, [...texts, ...others]);
  for (const row of rows) {
    // Refuse bytes: no text equals a Buffer, so the row of this run would look like another run's.
    const name = texts.find((each) => row[each] !== null && typeof row[each] !== "string");
    if (name === undefined) continue;
    throw new InvalidOptionError(
      `tx: expected text in the column ${name}, got ${describe(row[name])}. Let the driver return text as strings, and not as bytes or parsed, as by a column of type json or Kysely's ParseJSONResultsPlugin`,
    );
  }
  return rows;
}

/** Sends a statement; if the database answers with `code`, `meaning` makes the error. */
export async function send(
  tx: SqlExecutor,
  text: string,
  params: Parameters<SqlExecutor["query"]>[1],
  code: string | number,
  meaning: (cause: unknown) => Error,
): Promise<unknown> {
  try {
    return await tx.query(text, params);
  } catch (error) {
    throw hasCode(error, [code]) ? meaning(error) : error;
  }
}

/** Rule J2: thrown if no transaction is open before `work`. */
export function noTransaction(cause: unknown): TransactionRequiredError {
  const why =
    "tx: expected one open transaction, got statements outside of a transaction. Nothing was written. Send BEGIN, await each once() before the next, and pass the connection that has the transaction and not the pool";
  return new TransactionRequiredError(why, { cause });
}

/** Rule J2: thrown if the transaction is not the same after `work`. */
export function anotherTransaction(cause?: unknown): TransactionRequiredError {
  const why =
    "the transaction has ended within work, or was rolled back there. Let work neither commit nor roll back nor catch an error of the database, and use a connection for one transaction at a time";
  return new TransactionRequiredError(why, { cause });
}

/** Rule J3: thrown if the wait for another transaction is given up or the row pruned 3 times. */
export function waitedTooLong(): LockContendedError {
  const why =
    "another transaction has this submission's row, and the database gave up the wait. Roll back and try again in a moment: the submission does not run twice";
  return new LockContendedError(why, 0, { sameSubmission: true });
}

/**
 * Whether the database asks for the whole transaction again, from BEGIN: a conflict or a deadlock
 * (40001 and 40P01 of PostgreSQL, 1213 of MySQL, 3101 and 1180 of its group replication, 1020 of
 * MariaDB, P2034 of Prisma), also where a query builder wraps the error.
 *
 * @example
 * ```ts
 * for (let tries = 1; ; tries++) {
 *   try {
 *     return await db.transaction(work);
 *   } catch (error) {
 *     if (tries === 5 || !isRetryable(error)) throw error;
 *   }
 * }
 * ```
 */
export function isRetryable(error: unknown): boolean {
  // Prisma makes the text "1213" of the number.
  return hasCode(error, ["40001", "40P01", 1213, "1213", 3101, 1180, 1020, "P2034"]);
}

/** Looks into the errors that an error wraps, under the names that query builders use. */
function hasCode(error: unknown, codes: readonly unknown[], depth = 0): boolean {
  if (typeof error !== "object" || error === null || depth > 5) return false;
  const members = error as Record<string, unknown>;
  return (
    ["code", "errno", "originalCode"].some((name) => codes.includes(members[name])) ||
    ["cause", "original", "nativeError", "driverError", "driverAdapterError", "meta"].some((name) =>
      hasCode(members[name], codes, depth + 1),
    )
  );
}
