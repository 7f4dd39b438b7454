import { fork } from "node:child_process";
import { once } from "node:events";
import { fileURLToPath } from "node:url";
import { afterAll, beforeAll, expect, test } from "vitest";
import { lendDatabase } from "../../../examples/demo/shared-database.ts";
import { type Database, openDatabase } from "../../../examples/shop/database.ts";

const file = fileURLToPath(new URL("./borrower.ts", import.meta.url));
let db: Database;

beforeAll(async () => {
  db = await openDatabase(undefined);
  await db.query("CREATE TABLE notes (text text UNIQUE)");
});
afterAll(() => db.close());

/** Runs a borrower until it ends. */
async function borrow(what: string): Promise<number | null> {
  const child = fork(file, [what], { execArgv: ["--import", "tsx"] });
  lendDatabase(child, db);
  const [code] = await once(child, "exit");
  return code;
}

const notes = async () =>
  (await db.query<{ text: string }>("SELECT text FROM notes ORDER BY text")).map(
    ({ text }) => text,
  );

test("a lent database commits, rolls back, tells errors, and survives a borrower that is killed", async () => {
  expect(await borrow("commits")).toBe(0);
  expect(await notes()).toEqual(["committed"]);
  expect(await borrow("rolls back")).toBe(0);
  expect(await notes()).toEqual(["committed"]);
  expect(await borrow("is refused")).toBe(0);
  expect(await notes()).toEqual(["committed"]);
  // In the middle of a transaction, which nobody else may wait for.
  expect(await borrow("is killed")).toBe(null);
  expect(await notes()).toEqual(["committed"]);
});

test("a borrower that is killed while it waits for its turn keeps nobody waiting", async () => {
  let finish = () => {};
  const held = db.transaction(() => new Promise<void>((resolve) => (finish = resolve)));
  const child = fork(file, ["waits"], { execArgv: ["--import", "tsx"] });
  const asked = once(child, "message");
  lendDatabase(child, db);
  await asked;
  child.kill("SIGKILL");
  await once(child, "exit");
  finish();
  await held;
  expect(await notes()).toEqual(["committed"]);
});
