// Each query builder as the guide says: `builders.js DATABASE URL EXECUTORS`, the last as JSON.
import assert from "node:assert/strict";
import { randomUUID } from "node:crypto";
import { createRequire } from "node:module";
import { defineConfig, MikroORM } from "@mikro-orm/core";
import { MySqlDriver } from "@mikro-orm/mysql";
import { PostgreSqlDriver } from "@mikro-orm/postgresql";
import { PrismaMariaDb } from "@prisma/adapter-mariadb";
import { PrismaPg } from "@prisma/adapter-pg";
import { drizzle as drizzleMysql } from "drizzle-orm/mysql2";
import { drizzle as drizzlePg } from "drizzle-orm/node-postgres";
import { sql as drizzleSql } from "drizzle-orm/sql";
import knex from "knex";
import { CamelCasePlugin, CompiledQuery, Kysely, MysqlDialect, PostgresDialect } from "kysely";
import mariadb from "mariadb";
import mysqlCallbacks from "mysql2";
import mysql from "mysql2/promise";
import pg from "pg";
import postgres from "postgres";
import { Sequelize } from "sequelize";
import { identify, isRetryable, SubmissionTable } from "submit-lock/sql";
import { DataSource } from "typeorm";

const [, , database, url, executors] = process.argv;
const printed = JSON.parse(executors);
const isPostgres = database === "PostgreSQL";
const table = new SubmissionTable({ dialect: isPostgres ? "postgresql" : "mysql" });

/** The code of the guide, as it is printed. */
function executorOf(name, scope) {
  const code = `return (${printed[name]})`;
  return new Function(...Object.keys(scope), code)(...Object.values(scope));
}

const pgPool = isPostgres ? new pg.Pool({ connectionString: url }) : undefined;
const mysqlPool = isPostgres ? undefined : mysql.createPool(url);
const callbackPool = isPostgres ? undefined : mysqlCallbacks.createPool(url);

/** The pool as an executor, and a transaction of it. */
const builders = {
  Kysely() {
    const dialect = isPostgres
      ? new PostgresDialect({ pool: pgPool })
      : new MysqlDialect({ pool: callbackPool });
    const db = new Kysely({ dialect, plugins: [new CamelCasePlugin()] });
    const of = (trx) => executorOf("Kysely", { trx, CompiledQuery });
    return {
      pool: of(db),
      transaction: (work) => db.transaction().execute((trx) => work(of(trx))),
      close: async () => {},
    };
  },
  Knex() {
    const db = knex({ client: isPostgres ? "pg" : "mysql2", connection: url });
    const of = (trx) => executorOf("Knex", { trx });
    return {
      pool: of(db),
      transaction: (work) => db.transaction((trx) => work(of(trx))),
      close: () => db.destroy(),
    };
  },
  Drizzle() {
    const db = isPostgres ? drizzlePg(pgPool) : drizzleMysql(mysqlPool);
    const of = (tx) => executorOf("Drizzle", { tx, sql: drizzleSql });
    return {
      pool: of(db),
      transaction: (work) => db.transaction((tx) => work(of(tx))),
      close: async () => {},
    };
  },
  async TypeORM() {
    const db = new DataSource({ type: isPostgres ? "postgres" : "mysql", url });
    await db.initialize();
    return {
      pool: db.manager,
      transaction: (work) => db.transaction(work),
      close: () => db.destroy(),
    };
  },
  "Prisma 7"() {
    const { hostname: host, port, username: user } = new URL(url);
    const config = { host, port: Number(port), user, database: "shop" };
    const adapter = isPostgres
      ? new PrismaPg({ connectionString: url })
      : new PrismaMariaDb(config, { useTextProtocol: database === "MySQL" });
    const { PrismaClient } = createRequire(import.meta.url)(`./prisma-${database}`);
    const db = new PrismaClient({ adapter });
    const of = (tx) => executorOf("Prisma 7", { tx });
    return {
      pool: of(db),
      transaction: (work) => db.$transaction((tx) => work(of(tx))),
      close: () => db.$disconnect(),
    };
  },
  Sequelize() {
    const sequelize = new Sequelize(url, { logging: false });
    const of = (transaction) => executorOf("Sequelize", { sequelize, transaction });
    return {
      pool: of(undefined),
      transaction: (work) => sequelize.transaction((transaction) => work(of(transaction))),
      close: () => sequelize.close(),
    };
  },
  async MikroORM() {
    const driver = isPostgres ? PostgreSqlDriver : MySqlDriver;
    const discovery = { warnWhenNoEntities: false };
    const orm = await MikroORM.init(defineConfig({ driver, clientUrl: url, discovery }));
    const of = (em) => executorOf("MikroORM", { em });
    return {
      pool: of(orm.em.fork()),
      transaction: (work) => orm.em.fork().transactional((em) => work(of(em))),
      close: () => orm.close(),
    };
  },
  ...(!isPostgres && {
    mariadb() {
      const pool = mariadb.createPool(url.replace("mysql:", "mariadb:"));
      return {
        pool,
        async transaction(work) {
          const connection = await pool.getConnection();
          await connection.beginTransaction();
          try {
            const value = await work(connection);
            await connection.commit();
            return value;
          } catch (error) {
            await connection.rollback();
            throw error;
          } finally {
            await connection.release();
          }
        },
        close: () => pool.end(),
      };
    },
  }),
  ...(isPostgres && {
    "postgres.js"() {
      const db = postgres(url, { onnotice: () => {} });
      const of = (sql) => executorOf("postgres.js", { sql });
      return {
        pool: of(db),
        transaction: (work) => db.begin((sql) => work(of(sql))),
        close: () => db.end(),
      };
    },
  }),
};

const query = async (text) =>
  isPostgres ? (await pgPool.query(text)).rows : (await mysqlPool.query(text))[0];
const countOf = async (buyer) =>
  Number((await query(`SELECT count(*) AS n FROM orders WHERE buyer = '${buyer}'`))[0].n);

async function tryOut(name, { pool, transaction }) {
  const buyer = `${name}-${randomUUID()}`;
  const submission = identify(buyer, { id: "order", fingerprint: "one cup" });
  const order = (tx) => async () => {
    await tx.query(`INSERT INTO orders VALUES ('${buyer}')`, []);
    return { buyer };
  };
  const run = (of = submission) => transaction((tx) => table.once(tx, of, order(tx)));
  const codeOf = (promise) =>
    promise.then(
      () => "none",
      ({ code }) => code,
    );

  const required = "SUBMIT_LOCK_TRANSACTION_REQUIRED";
  assert.equal(await codeOf(table.once(pool, submission, order(pool))), required);
  assert.deepEqual(await query(`SELECT id FROM submissions WHERE id = '${submission.id}'`), []);
  const declined = new Error("declined");
  const rolledBack = transaction((tx) =>
    table.once(tx, submission, async () => {
      await order(tx)();
      throw declined;
    }),
  );
  await assert.rejects(rolledBack, declined);
  assert.equal(await countOf(buyer), 0);

  assert.deepEqual(await run(), { value: { buyer }, replayed: false, ageMs: 0 });
  const repeat = await run();
  assert.deepEqual([repeat.value, repeat.replayed], [{ buyer }, true]);
  const other = identify(buyer, { id: "order", fingerprint: "two cups" });
  assert.equal(await codeOf(run(other)), "SUBMIT_LOCK_MISMATCHED");
  assert.equal((await table.lookUp(pool, submission)).replayed, true);
  assert.equal(await countOf(buyer), 1);
  assert.equal(await table.prune(pool, { olderThanMs: 86_400_000, batchSize: 10 }), false);

  // Another connection has the row of a new submission.
  const waiting = identify(buyer, { id: "waiting" });
  const holder = isPostgres ? await pgPool.connect() : await mysqlPool.getConnection();
  await holder.query("BEGIN");
  await table.once(holder, waiting, () => 1);
  const gaveUp = transaction(async (tx) => {
    const limit = isPostgres ? "LOCAL lock_timeout = 50" : "SESSION innodb_lock_wait_timeout = 1";
    await tx.query(`SET ${limit}`, []);
    return await table.once(tx, waiting, () => 2);
  });
  assert.equal(await codeOf(gaveUp), "SUBMIT_LOCK_CONTENDED");
  await holder.query("ROLLBACK");
  holder.release();

  const [state, number] = ["40001", 1213];
  const raised = isPostgres
    ? `DO 'BEGIN RAISE EXCEPTION USING ERRCODE = ''${state}''; END'`
    : `SIGNAL SQLSTATE '${state}' SET MYSQL_ERRNO = ${number}`;
  const failure = await transaction((tx) => tx.query(raised, [])).catch((error) => error);
  assert.equal(isRetryable(failure), true, "a conflict is known");
  assert.equal(
    isRetryable(await transaction((tx) => tx.query("SELECT nothing", [])).catch((e) => e)),
    false,
  );
}

for (const ddl of table.ddl.split(";\n").filter((text) => text.trim())) await query(ddl);
await query("CREATE TABLE orders (buyer varchar(80) NOT NULL)");
const tried = [];
for (const [name, open] of Object.entries(builders)) {
  const builder = await open();
  await tryOut(name, builder).catch((error) => {
    throw new Error(`${name}: ${error.message}`, { cause: error });
  });
  await builder.close();
  tried.push(name);
}
await pgPool?.end();
await mysqlPool?.end();
callbackPool?.end();
console.log(tried.join(", "));
