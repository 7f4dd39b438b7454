import type { ChildProcess } from "node:child_process";
import type { Database, Sql } from "./shop/database.ts";

/** What a server process asks of the process that has the embedded database. */
interface Asked {
  readonly id: number;
  /** The transaction that it belongs to; 0 for none. */
  readonly tx: number;
  readonly op: "query" | "begin" | "commit" | "rollback";
  readonly text?: string;
  readonly values?: readonly unknown[];
}

interface Answered {
  readonly id: number;
  readonly rows?: unknown[];
  readonly error?: string;
}

/** An embedded database lives in one process. This lends it to a child, over the child's channel. */
export function lendDatabase(child: ChildProcess, db: Database): void {
  const open = new Map<number, { sql: Sql; end(commits: boolean): void }>();
  const overs = new Map<number, Promise<void>>();
  let isGone = false;

  const begin = (tx: number): Promise<void> =>
    new Promise((begun, failed) => {
      const over = db.transaction(async (sql) => {
        // It may have waited for another transaction, and its borrower may be gone by now.
        if (isGone) throw new Error("rolled back");
        const commits = await new Promise<boolean>((end) => {
          open.set(tx, { sql, end });
          begun();
        });
        open.delete(tx);
        if (!commits) throw new Error("rolled back");
      });
      overs.set(tx, over);
      // Once it has begun, this has no effect, and whoever asks for its end is told.
      over.catch(failed).finally(() => overs.delete(tx));
    });

  const run = async ({ tx, op, text = "", values = [] }: Asked): Promise<unknown[]> => {
    if (op === "begin") {
      await begin(tx);
      return [];
    }
    if (op === "query") return await (open.get(tx)?.sql ?? db).query(text, values);
    const over = overs.get(tx);
    open.get(tx)?.end(op === "commit");
    if (op === "commit") await over;
    if (op === "rollback") await over?.catch(() => {});
    return [];
  };

  child.on("message", (message: { sql?: Asked }) => {
    const { sql: asked } = message;
    if (asked === undefined) return;
    const answer = (answered: Omit<Answered, "id">) => {
      if (child.connected) child.send({ rows: { id: asked.id, ...answered } }, () => {});
    };
    run(asked).then(
      (rows) => answer({ rows }),
      (error: Error) => answer({ error: error.message }),
    );
  });
  // What a killed server had begun is rolled back, as a database does when a connection breaks.
  child.once("exit", () => {
    isGone = true;
    for (const { end } of open.values()) end(false);
  });
}

/** The database that the parent lends. */
export function lentDatabase(): Database {
  let last = 0;
  const waiting = new Map<number, (answered: Answered) => void>();
  process.on("message", ({ rows }: { rows?: Answered }) => {
    if (rows === undefined) return;
    waiting.get(rows.id)?.(rows);
    waiting.delete(rows.id);
  });

  const ask = (asked: Omit<Asked, "id">): Promise<unknown[]> =>
    new Promise((resolve, reject) => {
      const id = ++last;
      waiting.set(id, ({ rows, error }) => {
        if (error === undefined) resolve(rows ?? []);
        else reject(new Error(error));
      });
      process.send?.({ sql: { id, ...asked } });
    });

  const sqlOf = (tx: number): Sql => ({
    query: async (text, values = []) => (await ask({ tx, op: "query", text, values })) as never,
  });
  return {
    ...sqlOf(0),
    place: "in the memory of the demo",
    async transaction(work) {
      const tx = ++last;
      await ask({ tx, op: "begin" });
      try {
        const result = await work(sqlOf(tx));
        await ask({ tx, op: "commit" });
        return result;
      } catch (error) {
        await ask({ tx, op: "rollback" });
        throw error;
      }
    },
    close: async () => {},
  };
}
