import assert from "node:assert/strict";
import { readFileSync } from "node:fs";
import { serverBinary } from "../support/server-binary.ts";
import { startServer } from "../support/server-process.ts";
import { Consumers } from "./consumer-project.ts";

/**
 * `npm run lab -- tracing`: what OpenTelemetry's spans and ioredis' own channels tell of a lock, and
 * that the option in the documents keeps it out of the spans, beside the lock's own spans. It installs OpenTelemetry, so that it is
 * a command of its own.
 */
const OPENTELEMETRY = {
  "@opentelemetry/api": "1.9.1",
  "@opentelemetry/instrumentation-ioredis": "0.71.0",
  "@opentelemetry/sdk-trace-node": "2.12.0",
};
const CLIENTS = ["6.0.0", "5.11.1"];

interface Told {
  key: string;
  ownerId: string;
  spans: { name: string; attributes: Record<string, unknown>; parent?: string }[];
  published: string[];
}

const page = readFileSync(new URL("../../docs/operations/observing.md", import.meta.url), "utf8");
const shown = /`(new IORedisInstrumentation\(.*?\))`/.exec(page)?.[1];
assert(shown !== undefined, "the page on observing shows no IORedisInstrumentation");

const redis = await startServer(serverBinary());
const consumers = await Consumers.pack();
try {
  for (const ioredis of CLIENTS) {
    const packages = { ...OPENTELEMETRY, ioredis };
    const project = await consumers.install("tracing", { type: "commonjs", packages });
    const run = async (instrumentation: string): Promise<Told> => {
      const env = { REDIS_URL: `redis://127.0.0.1:${redis.port}`, TEST_USER: "user-42" };
      return JSON.parse(
        await project.node(["main.cjs"], { ...env, INSTRUMENTATION: instrumentation }),
      );
    };

    const byDefault = await run("new IORedisInstrumentation()");
    assert(byDefault.spans.length > 0, "by default, there are spans of the request");
    assert(evals(byDefault).length === 0, "by default, there is no span of a lock's command");

    const plain = await run("new IORedisInstrumentation({ requireParentSpan: false })");
    assert(tells(evals(plain), plain.key), "without the option, spans have the key");
    assert(tells(evals(plain), plain.ownerId), "without the option, spans have the owner id");
    assert(tells(plain.published, plain.ownerId), "ioredis' channel has the owner id");

    const quiet = await run(shown);
    assert(evals(quiet).length >= 2, "with the option, there are spans of the commands");
    assert(!tells(quiet.spans, quiet.key), "with the option, no span has the key");
    assert(!tells(quiet.spans, quiet.ownerId), "with the option, no span has the owner id");

    const own = quiet.spans.filter(({ name }) => name.startsWith("submit_lock."));
    assert.deepEqual(
      own.map(({ name, parent }) => `${name} of ${parent}`),
      ["submit_lock.acquire of POST /orders", "submit_lock.hold of POST /orders"],
      "the spans of the lock are the request's",
    );

    const bytes = (told: Told): number =>
      Math.round(JSON.stringify(evals(told)).length / evals(told).length);
    console.log(
      `ioredis ${ioredis}: a span has ${bytes(plain)} bytes, with the option ${bytes(quiet)}`,
    );
    console.log(
      `  without it: …${String(evals(plain)[0]?.attributes["db.query.text"]).slice(-120)}`,
    );
    console.log(`  with it:    ${evals(quiet)[0]?.attributes["db.query.text"]}`);
  }
} finally {
  await consumers.remove();
  await redis.stop();
}

function evals({ spans }: Told): Told["spans"] {
  return spans.filter(({ name }) => name === "eval" || name === "evalsha");
}

function tells(told: unknown, secret: string): boolean {
  return JSON.stringify(told).includes(secret);
}
