// A process that is lent a database: `borrower.ts WHAT`.
import { lentDatabase } from "../../../examples/demo/shared-database.ts";

const db = lentDatabase();
const insert = "INSERT INTO notes (text) VALUES ($1)";

switch (process.argv[2]) {
  case "commits":
    await db.transaction((tx) => tx.query(insert, ["committed"]));
    break;
  case "rolls back":
    await db
      .transaction(async (tx) => {
        await tx.query(insert, ["rolled back"]);
        throw new Error("no");
      })
      .catch((error: Error) => {
        if (error.message !== "no") throw error;
      });
    break;
  case "is refused": {
    const message = await db.query(insert, ["committed"]).then(
      () => "",
      (error: Error) => error.message,
    );
    if (!message.includes("duplicate key")) throw new Error(`it was told ${message}`);
    break;
  }
  case "waits":
    await db.transaction((tx) => tx.query(insert, ["waited"]));
    break;
  case "is killed":
    await db.transaction(async (tx) => {
      await tx.query(insert, ["killed"]);
      process.kill(process.pid, "SIGKILL");
      await new Promise(() => {});
    });
}
process.exit();
