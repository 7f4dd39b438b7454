import { fork } from "node:child_process";
import { once } from "node:events";
import { fileURLToPath } from "node:url";
import { afterAll, beforeAll, expect, test } from "vitest";
import { lendDatabase } from "../../../examples/demo/shared-database.ts";
import { type Database, openDatabase } from "../../../examples/demo/shop/database.ts";
import { Program } from "../../support/child.ts";

const borrower = fileURLToPath(new URL("./borrower.ts", import.meta.url));
let db: Database;

beforeAll(async () => {
  db = await openDatabase(undefined);
  await db.query("CREATE TABLE notes (text text UNIQUE)");
});
afterAll(() => db.close());

/** Runs a borrower until it ends. */
async function borrow(what: string): Promise<number | null> {
  const child = fork(borrower, [what], { execArgv: ["--import", "tsx"] });
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
  const child = fork(borrower, ["waits"], { execArgv: ["--import", "tsx"] });
  const asked = once(child, "message");
  lendDatabase(child, db);
  await asked;
  child.kill("SIGKILL");
  await once(child, "exit");
  finish();
  await held;
  expect(await notes()).toEqual(["committed"]);
});

const neverSilent = "examples/demo/never-silent.js";

test("a silent command of the demo has dots, on a line of their own, and keeps its exit code", async () => {
  const program = new Program(process.execPath, [
    neverSilent,
    "Waiting",
    "sleep 3; echo first; echo second; exit 3",
  ]);
  expect(await program.ended).toBe(3);
  expect(program.output()).toMatch(/^Waiting …\n {2}\.+\nfirst\nsecond\n$/);
});

test("there are no dots after the invitation", async () => {
  const command = "echo Now it is your turn; sleep 3; echo end";
  const program = new Program(process.execPath, [neverSilent, "Waiting", command]);
  expect(await program.ended).toBe(0);
  expect(program.output()).toBe("Waiting …\nNow it is your turn\nend\n");
});
