// The charge before the order's transaction, on PostgreSQL: every run of a submission asks for the
// same charge, until the provider is known to have declined it. Then another card may come.
import { SubmissionMismatchError } from "submit-lock";
import type { SqlSubmission } from "submit-lock/sql";

interface Pool {
  query(text: string, params: unknown[]): Promise<{ rows: unknown[] }>;
}

/** Goes into a migration. */
export const ddl = `CREATE TABLE charge_attempts (
  submission_id text PRIMARY KEY,
  fingerprint text,
  declines integer NOT NULL DEFAULT 0,
  runs integer NOT NULL DEFAULT 1
);`;

/**
 * @param ask asks the provider under a key, resolves to the charge's id, or to `undefined` if the
 * card was declined, and rejects if the outcome is not known: then the same key is asked again.
 * @returns the charge's id; `undefined`: declined, so answer 402.
 * @throws SubmissionMismatchError for other content, while a charge of the first may exist.
 */
export async function charge(
  pool: Pool,
  { fingerprint = "", id }: SqlSubmission,
  ask: (key: string) => Promise<string | undefined>,
): Promise<string | undefined> {
  for (;;) {
    // Committed before the charge, so that a run behind a crash has the same key.
    const { rows } = await pool.query(
      `INSERT INTO charge_attempts AS a (submission_id, fingerprint) VALUES ($1, $2)
       ON CONFLICT (submission_id) DO UPDATE SET runs = a.runs + 1, fingerprint = excluded.fingerprint
         WHERE a.fingerprint IS NULL OR a.fingerprint = excluded.fingerprint
       RETURNING declines, runs`,
      [id, fingerprint],
    );
    const [attempt] = rows as { declines: number; runs: number }[];
    if (attempt === undefined) {
      throw new SubmissionMismatchError("this submission may be charged with other content", false);
    }
    const chargeId = await ask(`${id}:${attempt.declines}`);
    if (chargeId !== undefined) return chargeId;
    await pool.query(
      `UPDATE charge_attempts SET declines = declines + 1, runs = 0, fingerprint = NULL
       WHERE submission_id = $1 AND declines = $2`,
      [id, attempt.declines],
    );
    if (attempt.runs === 1) return undefined;
    // A run before this one had asked under that key, perhaps for another card: ask for this one.
  }
}
