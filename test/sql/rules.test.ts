import { describe, expect, test } from "vitest";
import { identify, isRetryable, type SqlExecutor, SubmissionTable } from "../../src/sql/index.ts";
import {
  type Database,
  freshItem,
  inTransaction,
  ledgerOf,
  noOrder,
  oneOrder,
  placeOrder,
  type Session,
} from "./databases.ts";
import { onEachDatabase } from "./each-database.ts";

const required = { code: "SUBMIT_LOCK_TRANSACTION_REQUIRED", status: 500 };
const mismatched = { code: "SUBMIT_LOCK_MISMATCHED", status: 422, inFlight: false };
const unavailable = { code: "SUBMIT_LOCK_ANSWER_UNAVAILABLE", status: 409 };

/** An executor that sends other statements than it is told to: the library with a rule broken. */
function rewritten(tx: SqlExecutor, from: RegExp, to: string) {
  const sent = { count: 0 };
  const executor: SqlExecutor = {
    query(text, params) {
      if (from.test(text)) sent.count++;
      return tx.query(text.replace(from, to), params);
    },
  };
  return { sent, executor };
}

async function rowsOf(db: Database, id: string) {
  return await db.run(`SELECT * FROM submissions WHERE id = '${id}'`);
}

await onEachDatabase((db) => {
  const { dialect, table } = db;
  const order = (tx: SqlExecutor, { item, submission }: Awaited<ReturnType<typeof freshItem>>) =>
    table.once(tx, submission, () => placeOrder(tx, item));

  test("a first run is told so, and a repeat gets its value and its age", async () => {
    const fresh = await freshItem(db);
    const first = await inTransaction(db, (tx) => order(tx, fresh));
    expect(first).toEqual({ value: { item: fresh.item }, replayed: false, ageMs: 0 });
    await db.run(
      dialect === "mysql"
        ? `UPDATE submissions SET created_at = created_at - INTERVAL 90 SECOND WHERE id = '${fresh.submission.id}'`
        : `UPDATE submissions SET created_at = created_at - interval '90 s' WHERE id = '${fresh.submission.id}'`,
    );
    const repeat = await inTransaction(db, (tx) => order(tx, fresh));
    expect(repeat).toMatchObject({ value: { item: fresh.item }, replayed: true });
    expect(repeat.ageMs).toBeGreaterThanOrEqual(90_000);
    expect(repeat.ageMs).toBeLessThan(390_000);
    expect(await table.lookUp(db.pool, fresh.submission)).toMatchObject({ replayed: true });
    expect(await ledgerOf(db, fresh.item)).toEqual(oneOrder);
  });

  test("the value is what JSON makes of it, for the first caller too", async () => {
    const { submission } = await freshItem(db);
    const at = new Date(0);
    const run = () =>
      inTransaction(db, (tx) => table.once<object>(tx, submission, () => ({ at, no: undefined })));
    expect([(await run()).value, (await run()).value]).toEqual(
      Array.from({ length: 2 }, () => ({ at: at.toISOString() })),
    );
  });

  describe("J2: the proof of the transaction", () => {
    test("a pool is refused, and nothing was written", async () => {
      const fresh = await freshItem(db);
      await expect(order(db.pool, fresh)).rejects.toMatchObject(required);
      await expect(order(db.pool, fresh)).rejects.toThrow(/the pool$/);
      expect(await rowsOf(db, fresh.submission.id)).toEqual([]);
      expect(await ledgerOf(db, fresh.item)).toEqual(noOrder);
    });

    test("a connection without BEGIN is refused, and nothing was written", async () => {
      const fresh = await freshItem(db);
      const session = await db.begin();
      await session.rollback();
      await expect(order(session, fresh)).rejects.toMatchObject(required);
      await session.close();
      expect(await rowsOf(db, fresh.submission.id)).toEqual([]);
    });

    test("it undoes nothing that the application sends at the same time", async () => {
      const { item, submission } = await freshItem(db);
      const gift = identify(item, { id: "gift" });
      await inTransaction(db, (tx) =>
        table.once(tx, submission, async () => {
          await Promise.all([table.once(tx, gift, () => "a card"), placeOrder(tx, item)]);
        }),
      );
      expect(await ledgerOf(db, item)).toEqual(oneOrder);
      expect(await rowsOf(db, gift.id)).toHaveLength(1);
    });

    const endings: [string, (tx: Session) => Promise<unknown>][] = [
      ["COMMIT", (tx) => tx.commit()],
      ["ROLLBACK", (tx) => tx.rollback()],
      [
        "COMMIT and BEGIN",
        async (tx) => {
          await tx.commit();
          await tx.query(dialect === "mysql" ? "START TRANSACTION" : "BEGIN", []);
        },
      ],
      [
        "an older savepoint",
        (tx) => tx.query("ROLLBACK TO SAVEPOINT older", []) as Promise<unknown>,
      ],
    ];

    test.each(endings)("%s inside of work is noticed", async (_what, end) => {
      const { item, submission } = await freshItem(db);
      const tx = await db.begin();
      await tx.query("SAVEPOINT older", []);
      const run = table.once(tx, submission, async () => {
        await placeOrder(tx, item);
        await end(tx);
      });
      await expect(run).rejects.toMatchObject(required);
      await tx.rollback().catch(() => {});
      await tx.close();
    });

    test("counterexample: without the check at the end, a COMMIT inside of work would pass", async () => {
      const { item, submission } = await freshItem(db);
      const tx = await db.begin();
      const { executor, sent } =
        dialect === "mysql"
          ? rewritten(tx, /^RELEASE SAVEPOINT.*/, "SELECT 1")
          : rewritten(tx, /txid_current\(\)::text = \$3/, "$3::text IS NOT NULL");
      await table.once(executor, submission, async () => {
        await placeOrder(tx, item);
        await tx.commit();
      });
      expect(sent.count).toBe(dialect === "mysql" ? 2 : 1);
      await tx.rollback();
      await tx.close();
      // The order stays although its run was rolled back.
      expect(await ledgerOf(db, item)).toEqual(oneOrder);
    });
  });

  test("an error of work is passed on, and once it is rolled back, a repeat runs", async () => {
    const { item, submission } = await freshItem(db);
    const declined = new Error("the card was declined");
    const run = inTransaction(db, (tx) =>
      table.once(tx, submission, async () => {
        await placeOrder(tx, item);
        throw declined;
      }),
    );
    await expect(run).rejects.toBe(declined);
    expect(await ledgerOf(db, item)).toEqual(noOrder);
    await inTransaction(db, (tx) => order(tx, { item, submission }));
    expect(await ledgerOf(db, item)).toEqual(oneOrder);
  });

  test("J5: other content is a mismatch, and nothing is compared where a fingerprint is missing", async () => {
    const { item, submission } = await freshItem(db, "one cup");
    await inTransaction(db, (tx) => order(tx, { item, submission }));
    const other = identify(item, { id: "order", fingerprint: "two cups" });
    expect(other.id).toBe(submission.id);
    const repeat = (submission: typeof other) =>
      inTransaction(db, (tx) => order(tx, { item, submission }));
    await expect(repeat(other)).rejects.toMatchObject(mismatched);
    await expect(table.lookUp(db.pool, other)).rejects.toMatchObject(mismatched);
    expect(await repeat(submission)).toMatchObject({ replayed: true });
    expect(await repeat(identify(item, { id: "order" }))).toMatchObject({ replayed: true });
    expect(await ledgerOf(db, item)).toEqual(oneOrder);

    const unnamed = await freshItem(db);
    await inTransaction(db, (tx) => order(tx, unnamed));
    const named = identify(unnamed.item, { id: "order", fingerprint: "one cup" });
    expect(await inTransaction(db, (tx) => order(tx, { ...unnamed, submission: named }))).toEqual(
      expect.objectContaining({ replayed: true }),
    );
  });

  test("J6: a row that was committed without a value is never run again", async () => {
    const { item, submission } = await freshItem(db);
    const tx = await db.begin();
    const swallowed = new Error("the application goes on, and commits");
    await table
      .once(tx, submission, async () => {
        await placeOrder(tx, item);
        throw swallowed;
      })
      .catch(() => {});
    await tx.commit();
    await tx.close();
    const repeat = inTransaction(db, (again) => order(again, { item, submission }));
    await expect(repeat).rejects.toMatchObject(unavailable);
    await expect(table.lookUp(db.pool, submission)).rejects.toMatchObject(unavailable);
    expect(await ledgerOf(db, item)).toEqual(oneOrder);
  });

  test("J6: nor is one whose value was damaged", async () => {
    const { item, submission } = await freshItem(db);
    await inTransaction(db, (tx) => order(tx, { item, submission }));
    await db.pool.query(`UPDATE submissions SET value = '{"a' WHERE id = '${submission.id}'`, []);
    const repeat = inTransaction(db, (again) => order(again, { item, submission }));
    await expect(repeat).rejects.toMatchObject(unavailable);
    await expect(table.lookUp(db.pool, submission)).rejects.toMatchObject(unavailable);
    expect(await ledgerOf(db, item)).toEqual(oneOrder);
  });

  test("J8: whatever is refused, the guard is told to keep no answer; a value leaves it alone", async () => {
    const { item, submission } = await freshItem(db, "one cup");
    let told = 0;
    const heard = (given: object) => ({ ...submission, ...given, doNotStore: () => void told++ });
    await inTransaction(db, (tx) => table.once(tx, heard({}), () => placeOrder(tx, item)));
    await inTransaction(db, (tx) => table.once(tx, heard({}), () => placeOrder(tx, item)));
    const declined = new Error("declined");
    const another = identify(item, { id: "another" });
    const declines = inTransaction(db, (tx) =>
      table.once(tx, heard({ id: another.id }), () => Promise.reject(declined)),
    );
    await expect(declines).rejects.toBe(declined);
    expect(told).toBe(0);
    const other = heard({ fingerprint: another.id });
    await expect(
      inTransaction(db, (tx) => table.once(tx, other, () => placeOrder(tx, item))),
    ).rejects.toMatchObject(mismatched);
    expect(told).toBe(1);
    await expect(table.once(db.pool, heard({}), () => 1)).rejects.toMatchObject(required);
    expect(told).toBe(2);
  });

  const mib = 1_048_576;
  test.each<[string, unknown]>([
    ["undefined", undefined],
    ["null", null],
    ["an empty string", ""],
    ["a digit in a string", "1"],
    ["NUL", { text: "a\0b" }],
    ["a lone surrogate", { text: "\ud800" }],
    ["quotes and question marks", { text: `'"\`?$1\\` }],
    ["all of Unicode", { text: "ß漢字🛒" }],
    ["1 MiB", "x".repeat(mib - 2)],
  ])("%s comes back as it was returned", async (_name, value) => {
    const { submission } = await freshItem(db);
    const run = () => inTransaction(db, (tx) => table.once(tx, submission, () => value));
    expect(await run()).toEqual({ value, replayed: false, ageMs: 0 });
    expect(await run()).toMatchObject({ value, replayed: true });
  });

  test("a value above 1 MiB is returned and not kept", async () => {
    const { submission } = await freshItem(db);
    const value = "x".repeat(mib - 1);
    const run = () => inTransaction(db, (tx) => table.once(tx, submission, () => value));
    expect((await run()).value).toBe(value);
    await expect(run()).rejects.toMatchObject(unavailable);
  });

  // As the migration of an ORM may make it.
  const others: [what: string, from: RegExp, to: string, expected: RegExp][] = [
    ["no primary key", / PRIMARY KEY/, "", /with its primary key|ON CONFLICT/],
    ["no transactions", /=InnoDB/, "=MyISAM", /expected ENGINE=InnoDB/],
  ];
  test.each(others.filter(([, from]) => from.test(table.ddl)))(
    "a table with %s is named in the error of a repeat, and no repeat runs",
    async (what, from, to, expected) => {
      const other = new SubmissionTable({ dialect, table: what });
      await db.run(other.ddl.replace(from, to));
      const { submission } = await freshItem(db);
      const run = (work: () => unknown) =>
        inTransaction(db, (tx) => other.once(tx, submission, work));
      const isPlaced = what === "no primary key" && dialect === "mysql";
      await run(() => (isPlaced ? "placed" : Promise.reject("declined"))).catch(() => {});
      await expect(run(() => expect.fail("it ran"))).rejects.toThrow(expected);
    },
  );

  test("J9: texts that a driver returns as bytes are refused", async () => {
    const { submission } = await freshItem(db);
    for (const row of [
      { fingerprint: Buffer.from("f"), value: "1", run: "1", age: "1", probe: "" },
      { fingerprint: null, value: new Uint8Array([49]), run: "1", age: "1", probe: "" },
    ]) {
      const bytes: SqlExecutor = { query: async () => [row] };
      const text = /^tx: expected text in the column \w+, got an object. Let the driver/;
      await expect(table.lookUp(bytes, submission)).rejects.toThrow(text);
    }
  });

  test("J9: who parses results that look like JSON is refused before work, and nothing was written", async () => {
    const { submission } = await freshItem(db);
    const run = inTransaction(db, (tx) => {
      // Both shapes of a result: { rows }, and [rows, fields].
      const parse = (_name: string, value: unknown) =>
        typeof value === "string" && value.startsWith("{") ? JSON.parse(value) : value;
      const parsing: SqlExecutor = {
        query: async (text, params) => {
          const { rows, 0: first } = Object(await tx.query(text, params));
          return JSON.parse(JSON.stringify(rows ?? first ?? []), parse);
        },
      };
      return table.once(parsing, submission, () => expect.fail("it ran"));
    });
    await expect(run).rejects.toThrow(
      /in the column probe, got an object.*ParseJSONResultsPlugin$/,
    );
    expect(await rowsOf(db, submission.id)).toEqual([]);
  });

  test("a value is kept in ASCII, which a connection of another charset does not change", async () => {
    const { submission } = await freshItem(db);
    const value = { gift: "for Zoë 🎁 \u2028", lone: "\ud800" };
    const run = () => inTransaction(db, (tx) => table.once(tx, submission, () => value));
    expect((await run()).value).toEqual(value);
    expect(await run()).toMatchObject({ value, replayed: true });
    const [row] = await rowsOf(db, submission.id);
    expect((row as { value: string }).value).toMatch(/^[ -~]+$/);
  });

  const circle: { self?: object } = {};
  circle.self = circle;
  test.each<[string, unknown]>([
    ["a BigInt", 1n],
    ["a circle", circle],
    ["a function", () => 1],
  ])("%s is no value: everything is rolled back, and a repeat runs", async (_name, value) => {
    const fresh = await freshItem(db);
    const run = inTransaction(db, (tx) =>
      table.once(tx, fresh.submission, async () => {
        await placeOrder(tx, fresh.item);
        return value;
      }),
    );
    await expect(run).rejects.toMatchObject({ code: "SUBMIT_LOCK_INVALID_VALUE", status: 500 });
    await expect(run).rejects.toThrow(/Leave the transaction, and nothing has happened/);
    expect(await ledgerOf(db, fresh.item)).toEqual(noOrder);
    await inTransaction(db, (tx) => order(tx, fresh));
    expect(await ledgerOf(db, fresh.item)).toEqual(oneOrder);
  });

  test("J10: a table with any name works, in any schema", async () => {
    const longest = "t".repeat(dialect === "mysql" ? 60 : 59);
    for (const name of [`a"b\`c'd; --`, `${longest}"\`'x`]) {
      const schema = dialect === "mysql" ? "shop" : `s"${name.length}`;
      if (dialect !== "mysql") await db.run(`CREATE SCHEMA "s""${name.length}"`);
      const named = new SubmissionTable({ dialect, schema, table: name });
      await db.run(named.ddl);
      const { submission } = await freshItem(db);
      const run = () => inTransaction(db, (tx) => named.once(tx, submission, () => name));
      expect(await run()).toMatchObject({ value: name, replayed: false });
      expect(await run()).toMatchObject({ value: name, replayed: true });
      await expect(db.run(named.ddl)).rejects.toThrow(/exists/);
      const tx = await db.begin();
      if (dialect === "mysql") {
        // The connection has no database of its own any more.
        for (const word of ["CREATE DATABASE", "USE", "DROP DATABASE"]) {
          await tx.query(`${word} nowhere`, []);
        }
      }
      expect(await named.prune(tx, { olderThanMs: 86_400_000 })).toBe(false);
      tx.die();
    }
  });

  test("a submission in the work of another one has a row of its own, and its own is refused", async () => {
    const fresh = await freshItem(db);
    const inner = identify(fresh.item, { id: "gift" });
    const run = await inTransaction(db, (tx) =>
      table.once(tx, fresh.submission, async () => {
        const gift = await table.once(tx, inner, () => "a gift");
        await expect(table.once(tx, fresh.submission, () => 1)).rejects.toMatchObject(unavailable);
        return gift.value;
      }),
    );
    expect(run.value).toBe("a gift");
    expect(await table.lookUp(db.pool, inner)).toMatchObject({ value: "a gift" });
  });

  test("J13: rows are pruned in batches, by the database's clock, and never below a day", async () => {
    const fresh = await Promise.all(Array.from({ length: 5 }, () => freshItem(db)));
    for (const each of fresh) await inTransaction(db, (tx) => order(tx, each));
    const ids = fresh.map(({ submission }) => `'${submission.id}'`);
    const age = (days: number, of: string[]) =>
      db.run(
        dialect === "mysql"
          ? `UPDATE submissions SET created_at = UTC_TIMESTAMP(6) - INTERVAL ${days} DAY WHERE id IN (${of})`
          : `UPDATE submissions SET created_at = now() - interval '${days} days' WHERE id IN (${of})`,
      );
    const dayMs = 86_400_000;
    await age(8, ids.slice(0, 4));
    const prune = (db2: SqlExecutor) => table.prune(db2, { olderThanMs: 7 * dayMs, batchSize: 3 });
    expect(await prune(db.pool)).toBe(true);
    expect(await prune(db.pool)).toBe(false);
    const left = await db.run(`SELECT id FROM submissions WHERE id IN (${ids})`);
    expect(left).toEqual([{ id: fresh[4]?.submission.id }]);
    for (const olderThanMs of [604_800, dayMs - 1, Number.NaN, 1e13]) {
      await expect(table.prune(db.pool, { olderThanMs })).rejects.toThrow(/^olderThanMs: expected/);
    }
    for (const batchSize of [0, 1.5, 10_001]) {
      const wrong = table.prune(db.pool, { olderThanMs: dayMs, batchSize });
      await expect(wrong).rejects.toThrow(/^batchSize: expected/);
    }
  });

  test("J13: a prune passes over the rows of orders under way, and no order waits for it", async () => {
    const fresh = await Promise.all(Array.from({ length: 4 }, () => freshItem(db)));
    const [repeated, other] = fresh as [(typeof fresh)[0], (typeof fresh)[0]];
    for (const each of fresh.slice(0, 3)) await inTransaction(db, (tx) => order(tx, each));
    const ids = fresh.map(({ submission }) => `'${submission.id}'`).join();
    const days =
      dialect === "mysql" ? "UTC_TIMESTAMP(6) - INTERVAL 8 DAY" : "now() - interval '8 days'";
    await db.run(`UPDATE submissions SET created_at = ${days} WHERE id IN (${ids})`);
    const under = [await db.begin(), await db.begin()];
    const [first, second] = under as [Session, Session];
    if (dialect === "mysql")
      for (const tx of under) await tx.query("SET innodb_lock_wait_timeout = 1", []);
    // A repeat that locks an old row, and a new order.
    const lock = `SELECT id FROM submissions WHERE id = '${repeated.submission.id}' FOR UPDATE`;
    await first.query(lock, []);
    await order(second, fresh[3] as (typeof fresh)[0]);
    const prune = () => table.prune(db.pool, { olderThanMs: 7 * 86_400_000 });
    expect(await prune()).toBe(false);
    await order(first, await freshItem(db));
    for (const tx of under) {
      await tx.commit();
      await tx.close();
    }
    const left = await db.run(
      `SELECT id FROM submissions WHERE id IN (${ids}) ORDER BY created_at`,
    );
    expect(left.map(({ id }) => id)).toEqual(
      [repeated, fresh[3]].map((each) => each?.submission.id),
    );
    expect(await ledgerOf(db, other.item)).toEqual(oneOrder);
    expect(await prune()).toBe(false);
    expect((await rowsOf(db, repeated.submission.id)).length).toBe(0);
  });

  test("isRetryable knows a deadlock, and nothing that a repeat of the transaction would not mend", async () => {
    const [one, other] = [await freshItem(db), await freshItem(db)];
    const [first, second] = [await db.begin(), await db.begin()];
    const take = (tx: SqlExecutor, { item }: { item: string }) =>
      tx.query(`UPDATE stock SET changed = 7 WHERE item = '${item}'`, []);
    await take(first, one);
    await take(second, other);
    const outcomes = await Promise.allSettled([take(first, other), take(second, one)]);
    const failed = outcomes.filter((outcome) => outcome.status === "rejected");
    expect(failed).toHaveLength(1);
    expect(isRetryable(failed[0]?.reason)).toBe(true);
    await Promise.all([first.rollback(), second.rollback()]);
    await Promise.all([first.close(), second.close()]);
    const wrong = await db.run("SELECT wrong FROM nowhere").catch((error: unknown) => error);
    expect(isRetryable(wrong)).toBe(false);
  });

  describe("two doors of one effect: a webhook and the page to which the customer returns", () => {
    /** All orders in which two calls of three steps can happen: begin, order, commit. */
    const interleavings = ["AAABBB", "AABABB", "AABBAB", "ABAABB", "ABABAB"].flatMap((way) => [
      way,
      way.replace(/./g, (step) => (step === "A" ? "B" : "A")),
    ]);

    test.each(interleavings.flatMap((way) => [`${way}`, `${way} with a crash`]))(
      "%s: the payment is finished once",
      async (way) => {
        const { item } = await freshItem(db);
        const payment = { item, submission: identify(`payment:${item}`, { id: "finish" }) };
        const crashes = way.endsWith("crash");
        const doors = { A: door(payment, crashes), B: door(payment, false) };
        for (const step of way.slice(0, 6)) await doors[step as "A" | "B"].step();
        const outcomes = await Promise.all([doors.A.ended(), doors.B.ended()]);
        // The provider sends the webhook again.
        if (outcomes.includes("crashed")) await inTransaction(db, (tx) => order(tx, payment));
        expect(await ledgerOf(db, item)).toEqual(oneOrder);
      },
    );

    function door(payment: Awaited<ReturnType<typeof freshItem>>, crashes: boolean) {
      let taken = 0;
      let session: Promise<Session>;
      let run: Promise<unknown> = Promise.resolve();
      let end: Promise<string> = Promise.resolve("ended");
      const steps = [
        () => {
          session = db.begin();
          return session;
        },
        () => {
          run = session.then((tx) => order(tx, payment));
          run.catch(() => {});
          // It may wait for the other door, which has its next step then.
          return Promise.race([run.catch(() => {}), new Promise((go) => setTimeout(go, 30))]);
        },
        () => {
          end = finish(session, run, crashes, payment);
          return Promise.race([end, new Promise((go) => setTimeout(go, 30))]);
        },
      ];
      return { step: () => steps[taken++]?.(), ended: () => end };
    }

    async function finish(
      opened: Promise<Session>,
      run: Promise<unknown>,
      crashes: boolean,
      payment: Awaited<ReturnType<typeof freshItem>>,
    ): Promise<string> {
      const tx = await opened;
      try {
        await run;
        if (crashes) tx.die();
        else await tx.commit();
        return crashes ? "crashed" : "ended";
      } catch (error) {
        await tx.rollback().catch(() => {});
        if (!isRetryable(error)) throw error;
        await inTransaction(db, (again) => order(again, payment));
        return "ended";
      } finally {
        if (!crashes) await tx.close();
      }
    }
  });

  test("what the driver gives an application is an executor as it is", async () => {
    const { executors, end } = await db.native();
    await end("ROLLBACK");
    for (const name of Object.keys(executors)) {
      const [first, other] = [await freshItem(db, "one cup"), await freshItem(db)];
      const tried = async ({ item, submission }: typeof first, how: "COMMIT" | "ROLLBACK") => {
        const native = await db.native();
        const tx = native.executors[name] as SqlExecutor;
        const outcome = table
          .once(tx, submission, () => placeOrder(tx, item))
          .then(
            ({ replayed }) => (replayed ? "replayed" : "ran"),
            (error: { code: string }) => error.code,
          );
        await outcome;
        await native.end(how);
        return await outcome;
      };
      const content = identify(first.item, { id: "order", fingerprint: "two cups" });
      const outcomes = [
        await tried(other, "ROLLBACK"),
        await tried(other, "COMMIT"),
        await tried(other, "COMMIT"),
        await tried(first, "COMMIT"),
        await tried({ ...first, submission: content }, "ROLLBACK"),
      ];
      expect(outcomes, name).toEqual(["ran", "ran", "replayed", "ran", mismatched.code]);
      expect(await ledgerOf(db, first.item)).toEqual(oneOrder);
      expect(await ledgerOf(db, other.item)).toEqual(oneOrder);
      const native = await db.native();
      const tx = native.executors[name] as SqlExecutor;
      expect(await table.prune(tx, { olderThanMs: 315_360_000_000 })).toBe(false);
      await native.end("COMMIT");
    }
  });

  if (db.refusesPrepared) {
    test("prepared statements are refused by the database, and write nothing", async () => {
      const { item, submission } = await freshItem(db);
      const { prepared, end } = await db.native();
      const run = table.once(prepared as SqlExecutor, submission, () => placeOrder(db.pool, item));
      await expect(run).rejects.toHaveProperty("code", "ER_UNSUPPORTED_PS");
      await end("COMMIT");
      expect([await ledgerOf(db, item), await rowsOf(db, submission.id)]).toEqual([noOrder, []]);
    });
  }

  test("J9: rows as arrays are refused, and would be a known submission without a value", async () => {
    const { item, submission } = await freshItem(db);
    const { asArrays, end } = await db.native();
    const run = table.once(asArrays, submission, () => placeOrder(asArrays, item));
    await expect(run).rejects.toMatchObject({ code: "SUBMIT_LOCK_INVALID_OPTION" });
    await expect(run).rejects.toThrow(/^tx: expected rows that are objects with/);
    await end("ROLLBACK");
    expect(await rowsOf(db, submission.id)).toEqual([]);
  });

  test("J4: the value is read by a statement that sees the latest commit", async () => {
    const fresh = await freshItem(db);
    const [first, second] = [await db.begin(), await db.begin()];
    if (db.isolatesSnapshots) await second.query("SET innodb_snapshot_isolation = OFF", []);
    // The second one's snapshot, on MySQL and MariaDB.
    await second.query("SELECT count(*) AS n FROM submissions", []);
    await order(first, fresh);
    await first.commit();
    if (dialect === "mysql") {
      // Counterexample: a plain SELECT sees no row behind the conflict.
      const plain = rewritten(second, / FOR UPDATE/, "");
      const run = order(plain.executor, fresh);
      await expect(run).rejects.toMatchObject({ code: "SUBMIT_LOCK_INVALID_OPTION" });
      expect(plain.sent.count).toBe(1);
    }
    expect(await order(second, fresh)).toMatchObject({ replayed: true });
    await Promise.all([first.close(), second.close()]);
  });

  if (db.isolatesSnapshots) {
    test("J4: MariaDB may refuse to read what is newer than the snapshot, and asks for a repeat", async () => {
      const fresh = await freshItem(db);
      const [first, second] = [await db.begin(), await db.begin()];
      await second.query("SET innodb_snapshot_isolation = ON", []);
      await second.query("SELECT count(*) AS n FROM submissions", []);
      await order(first, fresh);
      await first.commit();
      const error: unknown = await order(second, fresh).catch((thrown) => thrown);
      expect(error).toMatchObject({ errno: 1020 });
      expect(isRetryable(error)).toBe(true);
      await Promise.all([first.close(), second.close()]);
      const again = await inTransaction(db, (tx) => order(tx, fresh));
      expect(again).toMatchObject({ replayed: true });
      expect(await ledgerOf(db, fresh.item)).toEqual(oneOrder);
    });
  }
});
