import { Page } from "../docs/page.ts";

const { blocks } = new Page("docs/operations/fencing.md");

/** The one statement of `docs/operations/fencing.md` that begins like this. */
function statement(beginning: string): string {
  const found = blocks.filter(({ language, code }) => {
    return language === "sql" && code.startsWith(beginning);
  });
  if (found.length !== 1) throw new Error(`${found.length} blocks begin with ${beginning}`);
  return (found[0] as { code: string }).code.trim();
}

/** The SQL that the page on fencing shows: what is tested is what is read. */
export const fencingSql = {
  tables: statement("CREATE TABLE carts"),
  begin: statement("UPDATE carts SET epoch"),
  end: statement("UPDATE carts SET status"),
  claim: statement("UPDATE carts SET fence"),
  reservations: statement("CREATE TABLE reservations"),
  reserve: statement("INSERT INTO reservations"),
} as const;
