import {
  AnswerUnavailableError,
  InvalidOptionError,
  InvalidValueError,
  isSubmitLockError,
  SubmissionMismatchError,
} from "../errors.ts";
import type { OnceResult } from "../lock/once.ts";
import { jsonOf, maxValueBytes } from "../lock/record.ts";
import { is22 } from "../lock/submission.ts";
import { checkMs, checkOptionNames, describe, hasMembers, invalidOption } from "../validation.ts";
import { mysql, postgresql } from "./dialects.ts";
import type { Dialect, SqlExecutor, SubmissionRow } from "./executor.ts";

export { identify } from "../lock/submission.ts";
export { isRetryable, type SqlExecutor } from "./executor.ts";

/*
 * The rules of the order's own transaction. Comments, tests and mutants use the numbers.
 *
 * - J1: the submission's row is written before any effect, and only the run that wrote it calls `work`.
 * - J2: the database proves that a transaction is open before the row, and the same at the end.
 * - J3: a run waits for the open transaction of its submission.
 * - J4: the value is read by a statement that sees the latest commit.
 * - J5: two fingerprints that differ are a mismatch; with one missing, nothing is compared.
 * - J6: a committed row without a value never runs again.
 * - J7: an id contains user and operation; no two pairs make one text.
 * - J8: a refusal is not kept as an answer.
 * - J9: rows without the columns, or with bytes or parsed values instead of text, are an error.
 * - J10: names are quoted, values are parameters; codes are found in errors that wrap others.
 * - J13: rows are pruned by the database's clock, from a day on, in batches.
 */

/** A submission whose id is unique across users: a guard's, a lease's, or `identify`'s. */
export interface SqlSubmission {
  /** 22 characters. */
  readonly id: string;
  /** 22 characters; nothing is compared without it. */
  readonly fingerprint?: string | undefined;
  /** Called where `once` or `lookUp` refuses, so that a guard does not keep the refusal. */
  doNotStore?(): void;
}

/** Options of {@link SubmissionTable}. */
export interface SubmissionTableOptions {
  /** `"mysql"` is for MariaDB too. @defaultValue "postgresql" */
  readonly dialect?: "postgresql" | "mysql" | undefined;
  /**
   * A name, quoted as it is and never parsed. 1 to 63 bytes (64 on MySQL), without NUL, `?` and `$`.
   * @defaultValue the schema of the search path; on MySQL the connection's database
   */
  readonly schema?: string | undefined;
  /** A name, as for `schema`. @defaultValue "submissions" */
  readonly table?: string | undefined;
}

/**
 * The table in which a submission's row commits together with the submission's effects. After that
 * commit, `work` never runs again for the submission. The constructor sends nothing. A row does not
 * help against a new id for each click, a repeat after a prune, or effects outside the transaction.
 *
 * @example
 * ```ts
 * const submissions = new SubmissionTable(); // its ddl goes into a migration
 *
 * app.post("/orders", guard.protect(async (req, res) => {
 *   const { value } = await db.transaction((tx) =>
 *     submissions.once(tx, req.submission, async () => {
 *       const order = await placeOrder(tx, req.body); // order, stock, outbox
 *       return { number: order.number };
 *     }));
 *   res.status(201).json(value);
 * }));
 * ```
 */
export class SubmissionTable {
  readonly #dialect: Dialect;

  /** @throws InvalidOptionError naming the option, what was expected and what came. */
  constructor(options: SubmissionTableOptions = {}) {
    checkOptionNames("SubmissionTable", options, ["dialect", "schema", "table"]);
    const { dialect = "postgresql", schema, table = "submissions" } = options;
    if (dialect !== "postgresql" && dialect !== "mysql") {
      throw invalidOption("dialect", '"postgresql" or "mysql"', dialect);
    }
    const [make, quote, maxBytes] =
      dialect === "mysql" ? ([mysql, "`", 64] as const) : ([postgresql, '"', 63] as const);
    const names = [quoteName("table", table, quote, maxBytes)];
    if (schema !== undefined) names.unshift(quoteName("schema", schema, quote, maxBytes));
    this.#dialect = make(names.join("."));
  }

  /** The statements for a migration. No IF NOT EXISTS: another table of this name is an error. */
  get ddl(): string {
    return this.#dialect.ddl;
  }

  /**
   * Runs `work` and keeps its value in the transaction of `tx`, or finds the value of an earlier run
   * and does not call `work`. Call `once` first in the transaction, and commit right after it.
   * `work` gets no argument: it must use the same transaction, and never the pool.
   *
   * A run sends three statements (seven on MySQL); none begins, commits or rolls back. While
   * another transaction with this submission is open, `once` waits, as long as the database
   * permits. Errors of `work`, and of the database except for those below, are passed on unchanged:
   * let them leave the transaction, which is then rolled back. Run the transaction again where
   * {@link isRetryable} says so.
   *
   * The value is kept as JSON of at most 1 MiB; a longer one is only returned.
   * @throws whatever `work` and the database throw.
   * @throws TransactionRequiredError without a transaction, or where it ended within `work`.
   * @throws SubmissionMismatchError for a known submission with another fingerprint.
   * @throws AnswerUnavailableError for a submission committed without a readable value: no rerun.
   * @throws LockContendedError (`sameSubmission`) where the database's lock timeout ended the wait.
   * @throws InvalidValueError for a value that JSON cannot say.
   * @throws InvalidOptionError for an argument or rows of another form.
   */
  once<Value>(
    tx: SqlExecutor,
    submission: SqlSubmission | undefined,
    work: () => Value | PromiseLike<Value>,
  ): Promise<OnceResult<Value>> {
    return refusing(submission, async () => {
      const { id, fingerprint } = checkCall(tx, submission);
      if (typeof work !== "function") throw invalidOption("work", "a function", work);
      const begun = await this.#dialect.begin(tx, id, fingerprint ?? null);
      if (typeof begun === "object") return resultOf<Value>(begun, fingerprint);
      const json = jsonOf(await work(), "Leave the transaction, and nothing has happened");
      if (json instanceof InvalidValueError) throw json;
      const isKept = Buffer.byteLength(json) <= maxValueBytes;
      await this.#dialect.end(tx, id, begun, isKept ? inAscii(json) : null);
      return { value: readValue(json), replayed: false, ageMs: 0 };
    });
  }

  /**
   * Finds the kept value. `undefined` (no row) does not permit a run. `db` may be a pool.
   * @throws SubmissionMismatchError, AnswerUnavailableError, InvalidOptionError as `once` does.
   */
  lookUp<Value>(
    db: SqlExecutor,
    submission: SqlSubmission,
  ): Promise<OnceResult<Value> | undefined> {
    return refusing(submission, async () => {
      const { id, fingerprint } = checkCall(db, submission);
      const row = await this.#dialect.find(db, id);
      return row && resultOf<Value>(row, fingerprint);
    });
  }

  /**
   * Deletes one batch of rows that are older than `olderThanMs`, by the database's clock, and
   * resolves to whether more may remain. A repeat of a deleted submission runs. `db` is a pool: until
   * the end of a transaction of yours, other customers' orders might wait.
   * @param options `olderThanMs`: a day to ten years in milliseconds; `batchSize`: 1 to 10 000,
   * 1 000 by default.
   * @throws InvalidOptionError, as a rejection.
   */
  async prune(
    db: SqlExecutor,
    options: { readonly olderThanMs: number; readonly batchSize?: number | undefined },
  ): Promise<boolean> {
    checkOptionNames("prune", options, ["olderThanMs", "batchSize"]);
    const { olderThanMs, batchSize = 1_000 } = options;
    // At least a day, so that seconds instead of milliseconds are refused (J13).
    checkMs("olderThanMs", olderThanMs, 86_400_000, 315_360_000_000);
    if (!Number.isInteger(batchSize) || batchSize < 1 || batchSize > 10_000) {
      throw invalidOption("batchSize", "a whole number from 1 to 10000", batchSize);
    }
    checkExecutor(db);
    return await this.#dialect.prune(db, olderThanMs, batchSize);
  }
}

function quoteName(option: string, name: unknown, quote: string, maxBytes: number): string {
  // NUL ends a name for the server, ? and $ are placeholders, and PostgreSQL cuts longer names
  // (J10).
  const isName = typeof name === "string" && name !== "" && !/[\0?$\p{Cs}]/u.test(name);
  if (isName && Buffer.byteLength(name) <= maxBytes) {
    return quote + name.replaceAll(quote, quote + quote) + quote;
  }
  const expected = `a name of 1 to ${maxBytes} bytes without NUL, ?, $ and lone surrogates`;
  throw invalidOption(option, expected, name);
}

/**
 * J8: after a refusal, a guard must not keep the handler's answer: a repeat with the right content
 * would get it.
 */
async function refusing<Result>(
  submission: SqlSubmission | undefined,
  act: () => Promise<Result>,
): Promise<Result> {
  try {
    return await act();
  } catch (error) {
    if (isSubmitLockError(error)) submission?.doNotStore?.();
    throw error;
  }
}

function checkExecutor(db: SqlExecutor): void {
  if (!hasMembers(db, ["query"]) || typeof db.query !== "function") {
    throw invalidOption("tx", "an object with a function query(text, params)", db);
  }
}

function checkCall(tx: SqlExecutor, submission: SqlSubmission | undefined): SqlSubmission {
  checkExecutor(tx);
  if (!hasMembers(submission, ["id"])) {
    throw new InvalidOptionError(
      `submission: expected that of a request, of a lease under once, or of identify, got ${describe(submission)}. A guard finds none without an id: set idempotency.key: "required"`,
    );
  }
  const { id, fingerprint } = submission as SqlSubmission;
  for (const [name, text] of Object.entries({ id, fingerprint: fingerprint ?? id })) {
    // Rule J7: refuse any other text, such as the application's own id, which two users may share.
    if (is22(text)) continue;
    const came =
      typeof text === "string" ? `a string of ${text.length} characters` : describe(text);
    throw new InvalidOptionError(
      `submission.${name}: expected 22 characters that contain the user, got ${came}. Make them with identify(userId, { id, fingerprint })`,
    );
  }
  return submission as SqlSubmission;
}

function resultOf<Value>(row: SubmissionRow, fingerprint: string | undefined): OnceResult<Value> {
  // Rule J5: other content does not get this value.
  const isCompared = row.fingerprint !== null && fingerprint !== undefined;
  if (isCompared && row.fingerprint !== fingerprint) {
    throw new SubmissionMismatchError(
      "this submission was made before, with another fingerprint. Use a new id for other content",
      false,
    );
  }
  // Rule J6: a row without a value does not run again.
  if (row.value === null) {
    throw new AnswerUnavailableError(
      "this submission was committed before, and its value was not kept: it was longer than 1 MiB, or an error of the work was not rolled back (MySQL: expected ENGINE=InnoDB). It does not run again: look for its effect",
    );
  }
  // The database's clock may have been set back.
  return { value: readValue(row.value), replayed: true, ageMs: Math.max(0, Number(row.age)) };
}

function readValue<Value>(json: string): Value {
  try {
    return json === "" ? (undefined as Value) : JSON.parse(json);
  } catch (cause) {
    throw new AnswerUnavailableError(
      "this submission was committed before, and the value in its row is not JSON: perhaps the driver escapes backslashes, and the server has NO_BACKSLASH_ESCAPES. It does not run again: look for its effect",
      { cause },
    );
  }
}

/** Escapes all but ASCII: a connection that is not UTF-8, as mysql2's latin1, would change text. */
function inAscii(json: string): string {
  return json.replace(
    /[\u0080-\uffff]/g,
    (each) => `\\u${each.charCodeAt(0).toString(16).padStart(4, "0")}`,
  );
}
