import { describe, expect, test } from "vitest";
import type { SqlExecutor } from "../../src/sql/index.ts";
import { until } from "../support/until.ts";
import {
  type Database,
  freshItem,
  inTransaction,
  isolations,
  ledgerOf,
  noOrder,
  oneOrder,
  placeOrder,
  type Session,
} from "./databases.ts";
import { onEachDatabase } from "./each-database.ts";

const endings = ["commits", "rolls back", "dies"] as const;

/** The session after so many statements, which breaks behind the last of them. */
function dyingBehind(session: Session, statements: number): SqlExecutor & { sent: number } {
  const dying = {
    sent: 0,
    async query(...statement: Parameters<SqlExecutor["query"]>) {
      const result = await session.query(...statement);
      if (++dying.sent === statements) {
        session.die();
        throw new Error("the process has died");
      }
      return result;
    },
  };
  return dying;
}

function order(db: Database, tx: SqlExecutor, { item, submission }: Fresh) {
  return db.table.once(tx, submission, () => placeOrder(tx, item));
}

type Fresh = Awaited<ReturnType<typeof freshItem>>;

await onEachDatabase((db) => {
  describe("J1 and J3: runs of one submission at once", () => {
    const cells = [2, 5, 20].flatMap((runs) =>
      isolations.flatMap((isolation) => endings.map((ending) => ({ runs, isolation, ending }))),
    );
    test.each(cells)("$runs in $isolation are one order where the first $ending", async (cell) => {
      const fresh = await freshItem(db);
      const first = await db.begin(cell.isolation);
      await order(db, first, fresh);
      let settled = 0;
      const others = Array.from({ length: cell.runs - 1 }, (_, nth) =>
        inTransaction(
          db,
          async (tx) => {
            // Every other one has a snapshot that is older than the first one's end.
            if (nth % 2 === 0) await tx.query("SELECT count(*) AS n FROM orders", []);
            return await order(db, tx, fresh);
          },
          cell.isolation,
        ).finally(() => settled++),
      );
      await untilWaiting(db);
      expect(settled).toBe(0);
      if (cell.ending === "commits") await first.commit();
      if (cell.ending === "rolls back") await first.rollback();
      if (cell.ending === "dies") first.die();
      else await first.close();
      const results = await Promise.all(others);
      expect(await ledgerOf(db, fresh.item)).toEqual(oneOrder);
      const replays = results.filter(({ replayed }) => replayed);
      expect(replays).toHaveLength(cell.runs - (cell.ending === "commits" ? 1 : 2));
      for (const { value } of results) expect(value).toEqual({ item: fresh.item });
    });
  });

  describe("a connection that breaks", () => {
    test("leaves nothing behind any statement, and a repeat places the order", async () => {
      for (let behind = 1, wasWhole = false; !wasWhole; behind++) {
        const fresh = await freshItem(db);
        const session = await db.begin();
        const dying = dyingBehind(session, behind);
        const run = await order(db, dying, fresh).catch(() => undefined);
        wasWhole = run !== undefined;
        if (wasWhole) expect(behind).toBe((db.dialect === "mysql" ? 7 : 3) + 3 + 1);
        session.die();
        const repeat = await inTransaction(db, (tx) => order(db, tx, fresh));
        expect(repeat, `behind statement ${behind}`).toMatchObject({ replayed: false });
        expect(await ledgerOf(db, fresh.item)).toEqual(oneOrder);
      }
    });

    test("with COMMIT sent and unanswered, is resolved by a repeat", async () => {
      let committed = 0;
      for (let round = 1; round <= 20; round++) {
        const fresh = await freshItem(db);
        const session = await db.begin();
        await order(db, session, fresh);
        session.commitUnheard();
        // In some rounds the statement is on its way, in others it was carried out.
        const waits = round % 2 === 0;
        if (waits) {
          await until(async () => (await ledgerOf(db, fresh.item)).orders === 1, {
            what: "COMMIT",
          });
        }
        session.die();
        const repeat = await inTransaction(db, (tx) => order(db, tx, fresh));
        if (repeat.replayed) committed++;
        expect(repeat.value).toEqual({ item: fresh.item });
        expect(await ledgerOf(db, fresh.item)).toEqual(oneOrder);
      }
      expect(committed).toBeGreaterThanOrEqual(10);
    });
  });

  describe("J3: a wait that the database gives up", () => {
    test("is contended by the same submission, and nothing has run", async () => {
      const fresh = await freshItem(db);
      const first = await db.begin();
      await order(db, first, fresh);
      const second = await db.begin();
      const limit =
        db.dialect === "mysql" ? "SESSION innodb_lock_wait_timeout = 1" : "lock_timeout = 50";
      await second.query(`SET ${limit}`, []);
      await expect(order(db, second, fresh)).rejects.toMatchObject({
        code: "SUBMIT_LOCK_CONTENDED",
        sameSubmission: true,
        status: 409,
      });
      await second.rollback();
      expect(await ledgerOf(db, fresh.item)).toEqual(noOrder);
      await first.commit();
      expect(await ledgerOf(db, fresh.item)).toEqual(oneOrder);
      await Promise.all([first.close(), second.close()]);
    });
  });
});

/** Until somebody waits for the first run: the others may still be on their way. */
async function untilWaiting(db: Database): Promise<void> {
  const waiting =
    db.dialect === "mysql"
      ? "SELECT count(*) AS n FROM information_schema.innodb_trx WHERE trx_state = 'LOCK WAIT'"
      : "SELECT count(*) AS n FROM pg_stat_activity WHERE wait_event_type = 'Lock'";
  const isWaiting = async () => Number((await db.run(waiting))[0]?.["n"]) > 0;
  // MariaDB makes that table anew at most ten times a second, and not while somebody reads it.
  await until(isWaiting, { what: "a run that waits", boundMs: 60_000, everyMs: 150 });
}
