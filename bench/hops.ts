import { Session } from "node:inspector/promises";
import { resolve } from "node:path";
import { pathToFileURL } from "node:url";
import express from "express";
import { Redis } from "ioredis";
import { serverBinary } from "../test/support/server-binary.ts";
import { startServer } from "../test/support/server-process.ts";

/**
 * `tsx bench/hops.ts [dist/esm] [--functions]`: which of the package's own files run code between the arrival of
 * one request and its handler, and between the handler's end and the deletion of the key. By V8's
 * precise coverage, after a request that has warmed everything up. With `--functions` it names the functions, too.
 */
const [folder = "dist/esm"] = process.argv.slice(2).filter((arg) => !arg.startsWith("--"));
const dist = resolve(folder);
const namesFunctions = process.argv.includes("--functions");
const at = async (...paths: string[]) => {
  for (const path of paths) {
    try {
      return await import(pathToFileURL(resolve(dist, path)).href);
    } catch (error) {
      if ((error as { code?: string }).code !== "ERR_MODULE_NOT_FOUND") throw error;
    }
  }
  throw new Error(`none of ${paths.join(", ")} is in ${dist}`);
};
const { RedisStore, SubmitLock } = await at("index.js");
const adapter = await at("express/index.js", "express.js");
const submitGuard = adapter.submitGuard ?? adapter.submitLock;

const server = await startServer(serverBinary());
const redis = new Redis(server.port, "127.0.0.1");
const observer = new Redis(server.port, "127.0.0.1");
const lock = new SubmitLock({ store: new RedisStore(redis) });
await lock.check();
const guard = submitGuard({ lock, userId: () => "42" });
let entered = () => {};
let goOn = Promise.resolve();
const app = express();
app.post(
  "/orders",
  guard.protect(async (_req: unknown, res: express.Response) => {
    entered();
    await goOn;
    res.status(201).json({ placed: true });
  }),
);
const http = app.listen(0, "127.0.0.1");
await new Promise((listening) => http.once("listening", listening));
const { port } = http.address() as { port: number };

async function request(onEntered: () => Promise<void>): Promise<void> {
  let release = () => {};
  goOn = new Promise((resolve) => {
    release = () => resolve();
  });
  const inHandler = new Promise<void>((resolve) => {
    entered = resolve;
  });
  const answered = fetch(`http://127.0.0.1:${port}/orders`, { method: "POST" });
  // On a busy machine the guard may refuse a request, which then never enters its handler.
  const refused = answered.then(({ status }) => Promise.reject(new Error(`answered ${status}`)));
  await Promise.race([inHandler, refused]);
  await onEntered();
  release();
  await (await answered).arrayBuffer();
  while ((await observer.exists("lock:submit:42")) === 1);
}

await request(async () => {});
const session = new Session();
session.connect();
await session.post("Profiler.enable");
await session.post("Profiler.startPreciseCoverage", { callCount: true, detailed: false });

interface Road {
  readonly files: readonly { file: string; names: string[]; calls: number }[];
  readonly functions: number;
}
/** Of several requests: a tick of the timer wheel, or an answer that is still to be read, may fall into one. */
const roads = new Map<string, Road[]>();

async function taken(what: string): Promise<void> {
  const { result } = await session.post("Profiler.takePreciseCoverage");
  const files = result
    .filter(({ url }) => url.includes(dist))
    .map(({ functions, url }) => {
      const called = functions.filter(({ ranges }) => (ranges[0]?.count ?? 0) > 0);
      const calls = called.reduce((sum, { ranges }) => sum + (ranges[0]?.count ?? 0), 0);
      return {
        file: url.slice(url.indexOf(dist) + dist.length + 1),
        names: called.map(({ functionName }) => functionName || "(anonymous)"),
        calls,
      };
    })
    .filter(({ names }) => names.length > 0);
  const functions = files.reduce((sum, { names }) => sum + names.length, 0);
  roads.set(what, [...(roads.get(what) ?? []), { files, functions }]);
}

for (let requests = 0; requests < 9; requests++) {
  await session.post("Profiler.takePreciseCoverage");
  await request(() => taken("from the request to its handler"));
  await taken("from the handler's end to the key's deletion");
}
for (const [what, all] of roads) {
  const sorted = all.toSorted((one, other) => one.functions - other.functions);
  const { files, functions } = sorted[Math.floor(sorted.length / 2)] as Road;
  const calls = files.reduce((sum, file) => sum + file.calls, 0);
  console.log(`${what}: ${files.length} files, ${functions} functions, ${calls} calls`);
  if (!namesFunctions) console.log(`  ${files.map(({ file }) => file).join(" ")}`);
  else for (const { file, names } of files) console.log(`  ${file}: ${names.join(" ")}`);
}
http.close();
await lock.close();
redis.disconnect();
observer.disconnect();
await server.stop();
process.exit(0);
