import { randomBytes } from "node:crypto";
import { readFileSync, writeFileSync } from "node:fs";
import { Redis } from "ioredis";
import { RedisStore, SubmitLock } from "submit-lock";
import { serverBinary, serverVersion } from "../test/support/server-binary.ts";
import { startServer } from "../test/support/server-process.ts";
import { Observer } from "./server-stats.ts";
import { number, table } from "./statistics.ts";

/** The lengths of an order's answer that are measured, in bytes, and how many of each; 0: no body is kept. */
const answers: readonly { readonly bytes: number; readonly records: number }[] = [
  { bytes: 0, records: 20_000 },
  { bytes: 300, records: 20_000 },
  { bytes: 1_024, records: 20_000 },
  { bytes: 4_096, records: 10_000 },
  { bytes: 65_536, records: 1_000 },
];

/** What a record of an answer of so many bytes takes in Redis. */
export interface RecordMemory {
  readonly bytes: number;
  /** `MEMORY USAGE` of one. */
  readonly usage: number;
  /** What Redis' memory has grown by, for each: also its tables. */
  readonly grown: number;
}

/** The JSON of an order of exactly so many bytes, with as many quotes as such JSON has. */
export function answerOf(bytes: number): string {
  const items: object[] = [];
  const order = () => JSON.stringify({ number: 1_234_567, currency: "EUR", items, note: "" });
  const item = () => ({
    sku: randomBytes(6).toString("hex"),
    name: "Coffee beans, 1 kg",
    quantity: items.length + 1,
    cents: 2_190,
  });
  items.push(item());
  while (order().length < bytes) items.push(item());
  items.pop();
  const text = order();
  return text.replace('"note":""', `"note":"${"n".repeat(bytes - text.length)}"`);
}

/** Keeps so many answers, each of another user, and looks at what Redis takes for them. */
async function measureRecords(port: number, bytes: number, records: number): Promise<RecordMemory> {
  const redis = new Redis(port, "127.0.0.1");
  const lock = new SubmitLock({ store: new RedisStore(redis) });
  const observer = new Observer(port);
  const body = bytes === 0 ? undefined : answerOf(bytes);
  await redis.flushall();
  const before = (await observer.stats()).usedMemory;
  for (let from = 0; from < records; from += 100) {
    const users = Array.from(
      { length: Math.min(100, records - from) },
      (_, i) => 10_000_000 + from + i,
    );
    await Promise.all(users.map((user) => keep(lock, user, body)));
  }
  const grown = Math.round(((await observer.stats()).usedMemory - before) / records);
  const [, keys] = await redis.scan(0, "MATCH", "{lock:submit:*", "COUNT", 1_000);
  const usages = await Promise.all(keys.slice(0, 100).map((key) => redis.memory("USAGE", key)));
  const usage = usages.reduce<number>((sum, each) => sum + Number(each), 0) / usages.length;
  await lock.close({ timeoutMs: 0 });
  observer.close();
  redis.disconnect();
  return { bytes, usage, grown };
}

async function keep(lock: SubmitLock, user: number, body: string | undefined): Promise<void> {
  const submission = { id: `cart-${user}:3`, fingerprint: "of the cart" };
  const attempt = await lock.acquire(user, { submission });
  if (attempt.outcome !== "acquired") throw new Error(`the submission was ${attempt.outcome}`);
  const headers = {
    "content-type": "application/json; charset=utf-8",
    location: `/orders/${user}`,
    etag: `W/"${randomBytes(12).toString("base64")}"`,
  };
  const outcome = await attempt.lease.complete({ status: 201, headers, body });
  if (outcome !== "recorded") throw new Error(`the answer was ${outcome}`);
}

/** The measured memory by the length of the answers. */
export function tableOf(measured: readonly RecordMemory[]): string {
  const rows = measured.map(({ bytes, grown, usage }) => [
    bytes === 0 ? "no body" : `${number(bytes)} B`,
    `${number(usage)} B`,
    `${number(grown)} B`,
  ]);
  return table(["answer", "`MEMORY USAGE`", "memory of Redis for each"], rows);
}

/**
 * `npm run lab -- record-memory`: measures the memory of records in a Redis, by the length of the answers.
 * Writes the table of docs/operations/records.md.
 */
export async function run(): Promise<void> {
  const binary = serverBinary();
  const server = await startServer(binary);
  const measured: RecordMemory[] = [];
  for (const { bytes, records } of answers) {
    measured.push(await measureRecords(server.port, bytes, records));
  }
  await server.stop();

  const day = new Date().toISOString().slice(0, 10);
  const made = `${day}, Node ${process.version}, ${serverVersion(binary)}.\n\n${tableOf(measured)}`;
  console.log(made);
  const marks = /(?<=<!-- made by npm run lab -- record-memory -->\n\n).*?(?=\n\n<!-- end -->)/s;
  const page = new URL("../docs/operations/records.md", import.meta.url);
  writeFileSync(page, readFileSync(page, "utf8").replace(marks, made));
}
