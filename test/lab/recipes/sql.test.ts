import { writeFile } from "node:fs/promises";
import { join } from "node:path";
import { afterAll, beforeAll, expect, test } from "vitest";
import { page } from "../../docs/page.ts";
import { Consumers, ownVersions, type Project } from "../../package/consumer-project.ts";
import {
  isMysqlNamed,
  startMariadb,
  startMysql,
  startPostgres,
} from "../../support/sql-servers.ts";

let consumers: Consumers;
let project: Project;
beforeAll(async () => {
  consumers = await Consumers.pack();
  project = await consumers.installRecipe(["sql"], {
    type: "module",
    packages: {
      ...ownVersions("pg", "mysql2"),
      "@mikro-orm/core": "7.2.1",
      "@mikro-orm/mysql": "7.2.1",
      "@mikro-orm/postgresql": "7.2.1",
      "drizzle-orm": "~0.45.0",
      prisma: "~7.10.0",
      "@prisma/adapter-mariadb": "~7.10.0",
      "@prisma/adapter-pg": "~7.10.0",
      "@prisma/client": "~7.10.0",
      kysely: "~0.28.0",
      knex: "~3.3.0",
      mariadb: "~3.5.0",
      postgres: "~3.4.0",
      sequelize: "~6.37.0",
      typeorm: "~1.1.0",
      "reflect-metadata": "^0.2.2",
    },
  });
});
afterAll(() => consumers?.remove());

/** A client of Prisma without a model. */
async function generatePrisma(database: string): Promise<void> {
  const provider = database === "PostgreSQL" ? "postgresql" : "mysql";
  const client = `provider = "prisma-client-js"\n output = "./prisma-${database}"`;
  const schema = `generator client {\n ${client}\n}\ndatasource db {\n provider = "${provider}"\n}`;
  await writeFile(join(project.folder, "schema.prisma"), schema);
  // It would be downloaded, and is for migrations alone.
  const env = { PRISMA_SCHEMA_ENGINE_BINARY: process.execPath };
  const prisma = "node_modules/prisma/build/index.js";
  await project.node([prisma, "generate", "--schema=schema.prisma"], env);
}

/** What the guide prints for each of them. */
const executors = Object.fromEntries(
  page("docs/guide/transaction.md")
    .tableUnder("What is `tx`")
    .map(([name = "", code = ""]) => [name, /^`+(\{.*\})`+$/.exec(code)?.[1] ?? code]),
);

test.for([
  [
    "PostgreSQL",
    startPostgres,
    "Kysely, Knex, Drizzle, TypeORM, Prisma 7, Sequelize, MikroORM, postgres.js",
  ],
  [
    "MariaDB",
    startMariadb,
    "Kysely, Knex, Drizzle, TypeORM, Prisma 7, Sequelize, MikroORM, mariadb",
  ],
  ...(isMysqlNamed
    ? ([
        [
          "MySQL",
          startMysql,
          "Kysely, Knex, Drizzle, TypeORM, Prisma 7, Sequelize, MikroORM, mariadb",
        ],
      ] as const)
    : []),
] as const)(
  "query builders on %s are executors as the guide prints them",
  async ([name, start, all], { skip }) => {
    const server = await start();
    if (server === undefined) return skip(`there is no ${name} here`);
    try {
      await generatePrisma(name);
      const args = ["builders.js", name, server.url, JSON.stringify(executors)];
      expect((await project.node(args)).trim()).toBe(all);
    } finally {
      await server.stop();
    }
  },
);
