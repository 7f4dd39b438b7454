import { join } from "node:path";
import { afterAll, beforeAll, describe, expect, test } from "vitest";
import { compiled } from "../support/compiled.ts";
import { page } from "./page.ts";
import { ReaderProject } from "./reader-project.ts";

const guide = page("docs/guide/browser.md");

/** Beside a shop whose first answer is lost, on Express. */
const shop = `
import express from "express";
import { MemoryStore, SubmitLock } from "submit-lock";
import { submitGuard } from "submit-lock/express";
const lock = new SubmitLock({ store: new MemoryStore() });
const guard = submitGuard({ lock, userId: () => "42", idempotency: { key: "required" } });
let orders = 0;
let answers = 0;
const app = express();
app.use(express.json());
app.use((req, _res, next) => {
  if (++answers === 1) setTimeout(() => req.socket.destroy(), 20);
  next();
});
app.post("/orders", guard.protect(async (_req, res) => {
  await new Promise((resolve) => setTimeout(resolve, 100));
  res.status(201).json({ order: ++orders });
}));
const server = app.listen(0);
await new Promise((resolve) => server.once("listening", resolve));
const url = "http://127.0.0.1:" + (server.address() as { port: number }).port + "/orders";
`;
const end = `
console.log(JSON.stringify(told), orders, answers >= 2);
server.closeAllConnections();
server.close();
await lock.close();
`;

/** Its storage outlives it. */
const app = `
import { existsSync, readFileSync, rmSync, writeFileSync } from "node:fs";
import { parentPort, workerData } from "node:worker_threads";
import { order } from "./order.ts";
const storage = {
  getItem: async (key: string) => (existsSync(key) ? readFileSync(key, "utf8") : null),
  setItem: async (key: string, value: string) => writeFileSync(key, value),
  removeItem: async (key: string) => rmSync(key),
};
const { status } = await order(workerData, "17", storage);
parentPort?.postMessage([status]);
`;

let project: ReaderProject;
beforeAll(() => {
  project = new ReaderProject();
});
afterAll(() => project.remove());

describe("the guide to the browser's half", () => {
  test("a cart: two clicks and a lost answer are one order", async () => {
    project.write("cart.ts", guide.blockUnder("A cart"));
    const clicks = `const cart = { id: "17", version: 3 };
const told = await Promise.all([placeOrder(url, cart), placeOrder(url, cart)]);
told.push(await placeOrder(url, cart));`;
    project.write("clicks.ts", `import { placeOrder } from "./cart.ts";${shop}${clicks}${end}`);
    const placed = JSON.stringify(Array(3).fill("Your order is placed."));
    expect(await project.run("clicks.ts")).toBe(`${placed} 1 true\n`);
  });

  test("a mobile app: one that was killed asks again", async () => {
    project.copy("mobile.ts", "order.ts");
    project.write("app.ts", app);
    const file = join(project.folder, "app.ts");
    await compiled({ file, outfile: `${file}.mjs` });
    const clicks = `const start = () => new Worker(new URL("app.ts.mjs", import.meta.url), { workerData: url });
const killed = start();
while (answers === 0) await new Promise((resolve) => setTimeout(resolve, 5));
await killed.terminate();
const isKept = existsSync("order:17");
const [told] = await once(start(), "message");
told.push(isKept, existsSync("order:17"));`;
    const imports = `import { once } from "node:events";
import { existsSync } from "node:fs";
import { Worker } from "node:worker_threads";`;
    project.write("phone.ts", `${imports}${shop}${clicks}${end}`);
    expect(await project.run("phone.ts")).toBe("[201,true,false] 1 true\n");
  });
});
