import { describe, expect, test } from "vitest";
import { MemoryStore, SubmitLock } from "../../src/index.ts";
import { hash22 } from "../../src/lock/submission.ts";
import { submitKey } from "../../src/lock/submit-key.ts";
import {
  identify,
  isRetryable,
  type SqlExecutor,
  SubmissionTable,
  type SubmissionTableOptions,
} from "../../src/sql/index.ts";

const invalid = { code: "SUBMIT_LOCK_INVALID_OPTION" };
const submission = identify(1, { id: "order" });

/** Answers every statement with the same, and notes them. */
function answering(result: unknown) {
  const texts: string[] = [];
  const tx: SqlExecutor = {
    query(text) {
      texts.push(text);
      return Promise.resolve(result);
    },
  };
  return { texts, tx };
}

describe("the table's name", () => {
  const quotes = { postgresql: '"', mysql: "`" };
  const dialects = ["postgresql", "mysql"] as const;

  test.each(dialects)("is quoted as it is on %s, and never parsed", (dialect) => {
    const quote = quotes[dialect];
    for (const name of ["submissions", "a b", "a.b", `a"b`, "a`b", "a;--", "ß"]) {
      const quoted = quote + name.replaceAll(quote, quote + quote) + quote;
      const { ddl } = new SubmissionTable({ dialect, table: name, schema: name });
      expect(ddl).toContain(`CREATE TABLE ${quoted}.${quoted} (`);
    }
    const { ddl } = new SubmissionTable({ dialect });
    expect(ddl).toContain(`CREATE TABLE ${quote}submissions${quote} (`);
    expect(ddl).not.toContain("IF NOT EXISTS");
  });

  test.each(["table", "schema"] as const)("%s has up to 63 bytes, and 64 on MySQL", (option) => {
    for (const [dialect, longest] of Object.entries({ postgresql: 63, mysql: 64 })) {
      const make = (name: unknown) => () =>
        new SubmissionTable({ dialect, [option]: name } as SubmissionTableOptions);
      expect(make("x".repeat(longest))).not.toThrow();
      expect(make(`${"x".repeat(longest - 3)}ß1`)).not.toThrow();
      expect(make("x".repeat(longest + 1))).toThrow(
        `${option}: expected a name of 1 to ${longest}`,
      );
      expect(make(`${"x".repeat(longest - 1)}ß`)).toThrow(`${option}: expected a name`);
      for (const wrong of ["", "a\0b", "a?", "a$1", "\ud800", 7, null]) {
        expect(make(wrong)).toThrow(`${option}: expected a name`);
      }
    }
  });

  test("other options are refused", () => {
    expect(() => new SubmissionTable({ dialect: "sqlite" as never })).toThrow(/^dialect: expected/);
    expect(() => new SubmissionTable({ name: "x" } as never)).toThrow(/unknown option "name"/);
  });
});

describe("J7: identify", () => {
  test("makes 22 characters of user and id, and no two pairs make one text", () => {
    const pairs: [string | number, string][] = [
      ["a\nb", "c"],
      ["a", "b\nc"],
      ["a", "c"],
      ["a%0Ab", "c"],
      ["a:b", "c"],
      ["a", "b:c"],
      [42, "order"],
    ];
    const ids = pairs.map(([user, id]) => identify(user, { id }).id);
    expect(new Set(ids).size).toBe(pairs.length);
    for (const id of ids) expect(id).toMatch(/^[\w-]{22}$/);
    expect(identify(42n, { id: "order" })).toEqual(identify("42", { id: "order" }));
    expect(identify(42, { id: "order" }).id).toBe(hash22(`once\n${submitKey("", 42)}\norder`));
  });

  test("hashes the fingerprint together with the id", () => {
    const [one, other] = ["a", "b"].map((id) => identify(1, { id, fingerprint: "content" }));
    expect(one?.fingerprint).toMatch(/^[\w-]{22}$/);
    expect(one?.fingerprint).not.toBe(other?.fingerprint);
    expect(identify(1, { id: "a" })).toEqual({ id: one?.id, fingerprint: undefined });
  });

  test("refuses what the lock refuses", () => {
    expect(() => identify({} as never, { id: "a" })).toThrow(/^userId: expected/);
    for (const id of ["", "x".repeat(1_025), "\ud800", 7]) {
      expect(() => identify(1, { id } as never)).toThrow(/^submission.id: expected/);
    }
    const empty = { id: "a", fingerprint: "" };
    expect(() => identify(1, empty)).toThrow(/^submission.fingerprint: expected/);
    expect(() => identify(1, undefined as never)).toThrow(/submission options: expected an object/);
  });

  test("lease.submission is the same under lock.once, and there is none elsewhere", async () => {
    const lock = new SubmitLock({ store: new MemoryStore() });
    const asked = { id: "finish", fingerprint: "content", retainMs: 60_000 };
    const { value } = await lock.once("payment:7", asked, (lease) => lease.submission);
    expect(value).toEqual(identify("payment:7", asked));
    expect(await lock.withLock(1, (lease) => lease.submission)).toBeUndefined();
    await lock.close();
  });
});

test("a raw id of the application is refused: two users would share an order", async () => {
  const table = new SubmissionTable();
  const { texts, tx } = answering({ rows: [{ tx: "1", id: "1" }] });
  const wrongs: [unknown, RegExp][] = [
    [undefined, /^submission: expected .* got undefined\. .*idempotency\.key: "required"/],
    ["checkout:7", /^submission: expected/],
    [{ id: "checkout:7" }, /^submission\.id: expected 22 characters .* Make them with identify/],
    [{ id: submission.id, fingerprint: "cart 7" }, /^submission\.fingerprint: expected/],
    [{ id: 7 }, /^submission\.id: expected/],
  ];
  for (const [wrong, message] of wrongs) {
    const run = table.once(tx, wrong as never, () => 1);
    await expect(run).rejects.toMatchObject(invalid);
    await expect(run).rejects.toThrow(message);
  }
  await expect(table.once({} as never, submission, () => 1)).rejects.toThrow(/^tx: expected/);
  await expect(table.once(tx, submission, 1 as never)).rejects.toThrow(/^work: expected/);
  expect(texts).toEqual([]);
});

test("J9: rows of another form are refused", async () => {
  const table = new SubmissionTable();
  const wrongs: unknown[] = [undefined, 1, { rowCount: 1 }, { rows: [1] }, [{ TX: "1" }], [["1"]]];
  for (const wrong of wrongs) {
    const run = table.once(answering(wrong).tx, submission, () => 1);
    await expect(run).rejects.toMatchObject(invalid);
    await expect(run).rejects.toThrow(/^tx: expected rows that are objects with tx, probe, got/);
  }
  const known = { tx: "1", id: "1", probe: "{}" };
  for (const right of [{ rows: [known] }, [known], [[known], ["fields"]]]) {
    const run = table.once(answering(right).tx, submission, () => 1);
    await expect(run).resolves.toEqual({ value: 1, replayed: false, ageMs: 0 });
  }
});

test("a row that can never be read is not run, and not asked for without end", async () => {
  const { texts, tx } = answering({ rows: [] });
  const run = new SubmissionTable().once(tx, submission, () => 1);
  await expect(run).rejects.toMatchObject({ code: "SUBMIT_LOCK_CONTENDED", sameSubmission: true });
  expect(texts).toHaveLength(1 + 3 * 2);
});

test("J10: each placeholder is there once and in order, whatever the name", async () => {
  for (const dialect of ["postgresql", "mysql"] as const) {
    const table = new SubmissionTable({ dialect, table: `a"b\`c` });
    const { texts, tx } = answering({ rows: [] });
    await table.once(tx, submission, () => 1).catch(() => {});
    await table.lookUp(tx, submission);
    await table.prune(tx, { olderThanMs: 86_400_000 }).catch(() => {});
    expect(texts.length).toBeGreaterThan(5);
    for (const text of texts) {
      const numbers = [...text.matchAll(/\$(\d+)/g)].map(([, number]) => Number(number));
      expect(numbers).toEqual(numbers.map((_, at) => at + 1));
      if (dialect === "mysql") expect(numbers).toEqual([]);
    }
  }
});

test("errors are known by their codes, also where they are wrapped", () => {
  const known = [
    ...[{ code: "40001" }, { code: "40P01" }, { errno: 1213 }, { errno: 1020 }, { code: "P2034" }],
    // MySQL's group replication, at COMMIT: two members took the same row.
    ...[{ errno: 3101 }, { errno: 1180 }, new Error("Prisma", { cause: { code: 3101 } })],
    new Error("drizzle", { cause: { code: "40001" } }),
    { driverError: { errno: 1213 } },
    Object.assign(new Error("Sequelize"), { original: { code: "40001" } }),
    Object.assign(new Error("Objection"), { nativeError: { code: "40P01" } }),
    ...["40P01", "1213"].map((originalCode) => ({
      code: "P2010",
      meta: { driverAdapterError: { cause: { originalCode } } },
    })),
  ];
  for (const error of known) expect(isRetryable(error)).toBe(true);
  const circular: { cause?: unknown } = {};
  circular.cause = circular;
  for (const error of [
    undefined,
    null,
    "40001",
    40001,
    { code: 40001 },
    { code: "23505" },
    circular,
  ]) {
    expect(isRetryable(error)).toBe(false);
  }
});
