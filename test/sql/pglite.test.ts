import { PGlite } from "@electric-sql/pglite";
import { expect, test } from "vitest";
import { identify, type SqlExecutor, SubmissionTable } from "../../src/sql/index.ts";

test("a Transaction of PGlite is an executor as it is, and PGlite itself is refused", async () => {
  const db = new PGlite();
  const table = new SubmissionTable();
  await db.exec(`CREATE TABLE orders (number serial); ${table.ddl}`);
  const submission = identify(1, { id: "order", fingerprint: "one cup" });
  const place = async (tx: SqlExecutor) => {
    await tx.query("INSERT INTO orders DEFAULT VALUES", []);
    return "placed";
  };
  const order = (of = submission) => db.transaction((tx) => table.once(tx, of, () => place(tx)));
  const required = { code: "SUBMIT_LOCK_TRANSACTION_REQUIRED" };
  await expect(table.once(db, submission, () => place(db))).rejects.toMatchObject(required);
  expect((await db.query("SELECT * FROM submissions")).rows).toEqual([]);
  const failed = db.transaction((tx) =>
    table.once(tx, submission, async () => {
      await place(tx);
      throw new Error("declined");
    }),
  );
  await expect(failed).rejects.toThrow("declined");
  expect(await order()).toEqual({ value: "placed", replayed: false, ageMs: 0 });
  expect(await order()).toMatchObject({ value: "placed", replayed: true });
  const other = identify(1, { id: "order", fingerprint: "two cups" });
  await expect(order(other)).rejects.toMatchObject({ code: "SUBMIT_LOCK_MISMATCHED" });
  expect((await db.query("SELECT count(*)::int AS n FROM orders")).rows).toEqual([{ n: 1 }]);
  expect(await table.prune(db, { olderThanMs: 86_400_000 })).toBe(false);
  await db.close();
});
