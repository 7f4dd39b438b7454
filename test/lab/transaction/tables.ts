import { SubmissionTable } from "../../../src/sql/index.ts";
import { type DatabaseName, type Subject, subjects } from "./schedule.ts";

export function ordersOf(subject: Subject): string {
  return `orders_${subjects.indexOf(subject)}`;
}

/**
 * A table of orders for each subject. That of `submissions.once` has no unique key, so that it has
 * to do without one.
 */
export function statementsFor(database: DatabaseName): string[] {
  const isPostgres = database === "PostgreSQL";
  const number = isPostgres ? "bigserial PRIMARY KEY" : "bigint AUTO_INCREMENT PRIMARY KEY";
  const orders = subjects.map(
    (subject) => `CREATE TABLE ${ordersOf(subject)} (
      number ${number}, buyer varchar(60) NOT NULL, status varchar(10) NOT NULL DEFAULT 'pending',
      submission_id varchar(22) ${subject === "submissions.once" ? "" : "UNIQUE"})`,
  );
  const { ddl } = new SubmissionTable({ dialect: isPostgres ? "postgresql" : "mysql" });
  return [
    ...orders,
    "CREATE TABLE stock (buyer varchar(60) PRIMARY KEY, changed int NOT NULL)",
    `CREATE TABLE outbox (number ${number}, buyer varchar(60) NOT NULL, topic varchar(10) NOT NULL)`,
    ...orders.map((_, at) => `CREATE INDEX of_buyer_${at} ON orders_${at} (buyer)`),
    "CREATE INDEX of_buyer ON outbox (buyer)",
    ...ddl.split(";\n").filter((statement) => statement.trim() !== ""),
  ];
}
