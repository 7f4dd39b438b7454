import { createRequire } from "node:module";
import * as imported from "submit-lock";

const { MemoryStore, SubmitLock } = imported;
const lock = new SubmitLock({ store: new MemoryStore() });
const first = await lock.acquire("42");
const second = await lock.acquire("42");
const released = await first.lease.release();
await lock.close();

const adapters = [];
for (const name of ["express", "koa", "fastify", "fetch"]) {
  const { submitGuard } = await import(`submit-lock/${name}`);
  adapters.push(typeof submitGuard({ lock, userId: () => "42" }));
}
const { SubmissionTable } = await import("submit-lock/sql");
const required = createRequire(import.meta.url)("submit-lock");
const withoutApi = await import("submit-lock/opentelemetry").then(
  () => "loaded",
  (error) => error.message,
);
console.log(
  JSON.stringify({
    outcomes: [first.outcome, second.outcome, released],
    adapters,
    table: new SubmissionTable().ddl.split("\n")[0],
    withoutApi,
    oneCopy: required.SubmitLock === imported.SubmitLock,
  }),
);
