import { readFileSync, writeFileSync } from "node:fs";
import { serverBinary, serverVersion } from "../test/support/server-binary.ts";
import { startServer } from "../test/support/server-process.ts";
import { answers, measureRecords, type RecordMemory, tableOf } from "./record-memory.ts";

/**
 * `npm run lab -- record-memory`: measures the memory of records in a Redis, by the length of the answers.
 * Writes the table of docs/operations/records.md.
 */
const page = new URL("../docs/operations/records.md", import.meta.url);

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
writeFileSync(page, readFileSync(page, "utf8").replace(marks, made));
