import { execFile } from "node:child_process";
import {
  existsSync,
  mkdirSync,
  mkdtempSync,
  readFileSync,
  realpathSync,
  rmSync,
  symlinkSync,
  writeFileSync,
} from "node:fs";
import { tmpdir } from "node:os";
import { dirname, join } from "node:path";
import { promisify } from "node:util";
import { Program } from "../support/child.ts";
import { compiled } from "../support/compiled.ts";
import { freePort } from "../support/free-port.ts";
import { until } from "../support/until.ts";
import { ROOT } from "./page.ts";

const exec = promisify(execFile);

const packages = [
  "express",
  "express-session",
  "koa",
  "@koa/router",
  "@koa/bodyparser",
  "fastify",
  "hono",
  "@hono/node-server",
  "ioredis",
  "redis",
  "pino",
  "@opentelemetry/api",
  "@opentelemetry/exporter-prometheus",
  "@opentelemetry/sdk-metrics",
  "supertest",
  "@electric-sql/pglite",
  "@types/node",
  "@types/express",
  "@types/express-session",
  "@types/koa",
];

interface Served {
  readonly url: string;
  /** What it has printed, at its end; rejects where it failed or was killed. */
  readonly ended: Promise<string>;
}

/** A project of somebody who copies from the documents. It uses what `npm run build` left in `dist`. */
export class ReaderProject {
  readonly folder: string;
  readonly #running = new Set<Program>();

  constructor() {
    if (!existsSync(join(ROOT, "dist/cjs/package.json"))) {
      throw new Error("There is no build to use: run `npm run build` first.");
    }
    this.folder = realpathSync(mkdtempSync(join(tmpdir(), "submit-lock-readme-")));
    this.#link("submit-lock", ROOT);
    for (const name of packages) this.#link(name, join(ROOT, "node_modules", name));
    this.write("package.json", JSON.stringify({ type: "module" }));
    this.write("untyped.d.ts", 'declare module "supertest";');
  }

  #link(name: string, target: string): void {
    const link = join(this.folder, "node_modules", name);
    mkdirSync(dirname(link), { recursive: true });
    // A junction needs no special right on Windows.
    symlinkSync(target, link, "junction");
  }

  /** Node refuses a name that two imports bind, which esbuild lets pass. */
  write(file: string, text: string): void {
    const lists = [...text.matchAll(/^import (?:type )?\{?([^"]*?)\}? from "/gm)];
    const names = lists.flatMap(([, list]) => list?.split(",") ?? []);
    const bound = names.map((name) => /(\w+)\s*$/.exec(name)?.[1]).filter(Boolean);
    const twice = bound.find((name, i) => bound.indexOf(name) !== i);
    if (twice !== undefined) throw new Error(`${file} imports ${twice} twice:\n${text}`);
    writeFileSync(join(this.folder, file), text);
  }

  /** Writes an example as it is. */
  copy(example: string, file: string): void {
    this.write(file, readFileSync(join(ROOT, "examples", example), "utf8"));
  }

  /** What the compiler says about every `.ts` file of the project; nothing, if all is well. */
  async typeErrors(): Promise<string> {
    const compilerOptions = {
      noEmit: true,
      target: "es2022",
      lib: ["es2023"],
      module: "nodenext",
      types: ["node"],
      strict: true,
      noUncheckedIndexedAccess: true,
      exactOptionalPropertyTypes: true,
      noImplicitReturns: true,
      allowImportingTsExtensions: true,
      skipLibCheck: true,
    };
    this.write("tsconfig.json", JSON.stringify({ compilerOptions, include: ["*.ts"] }));
    const tsc = join(ROOT, "node_modules/typescript/bin/tsc");
    return await exec(process.execPath, [tsc, "-p", this.folder]).then(
      () => "",
      (error: { stdout: string }) => error.stdout,
    );
  }

  /** Runs a file to its end and resolves with what it printed; rejects with its errors. */
  async run(file: string, env: Record<string, string> = {}): Promise<string> {
    const program = await this.#spawn(file, env);
    const code = await program.ended;
    if (code !== 0) throw new Error(`${file} ended with ${code}:\n${program.output()}`);
    return program.output();
  }

  /** Runs code that serves until `remove` ends it, and waits until it answers. */
  async serve(file: string, code: string, env: Record<string, string> = {}): Promise<Served> {
    const port = await freePort();
    this.write(`${port}-${file}`, code);
    const url = `http://127.0.0.1:${port}`;
    const start = () => {
      const ended = this.run(`${port}-${file}`, { PORT: `${port}`, ...env });
      ended.catch((error: Error) => {
        failure = error;
      });
      return ended;
    };
    let failure: Error | undefined;
    let ended = start();
    const answers = async () => {
      if (failure !== undefined) {
        // On a busy machine the first check may come too late: a process manager starts it again.
        if (!failure.message.includes("LockUnavailableError")) throw failure;
        failure = undefined;
        ended = start();
      }
      return await fetch(url).then(
        () => true,
        () => false,
      );
    };
    await until(answers, { what: file, boundMs: 300_000, everyMs: 50 });
    return { url, ended };
  }

  async #spawn(file: string, env: Record<string, string>): Promise<Program> {
    const path = join(this.folder, file);
    const module = file.endsWith(".ts")
      ? await compiled({ file: path, outfile: `${path}.mjs` })
      : path;
    const program = new Program(process.execPath, [module], {
      cwd: this.folder,
      env: { ...process.env, NODE_ENV: "test", ...env },
    });
    this.#running.add(program);
    return program;
  }

  remove(): void {
    for (const program of this.#running) program.kill();
    rmSync(this.folder, { recursive: true, force: true });
  }
}

/** The application of the reader whose tests are shown. */
export const appOfReader = `
import express from "express";
import type { SubmitLock } from "submit-lock";
import { submitGuard } from "submit-lock/express";
export function createApp(lock: SubmitLock): express.Express {
  const app = express();
  const guard = submitGuard({ lock, userId: (req) => req.get("x-user-id") });
  app.post("/orders", guard.protect(async (_req, res) => {
    res.status(201).json({ placed: true });
  }));
  return app;
}
`;

/**
 * The shop behind the recipes. It tells the test of each order, and takes 50 ms for it. Code that does
 * not hand its lease's signal on does not compile.
 */
export const shop = `
import { appendFileSync } from "node:fs";
import { setTimeout as sleep } from "node:timers/promises";
export interface Cart { readonly id: string; readonly version: number }
export interface Order { readonly number: number; readonly cart: string }
const carts = new Map<string, string>();
const versions = new Map<string, number>();
const orders: Order[] = [];
export async function cartOf(userId: string | undefined): Promise<Cart> {
  const id = carts.get(userId ?? "") ?? "cart-of-" + userId;
  return { id, version: versions.get(id) ?? 1 };
}
export async function moveCart(from: string, to: string): Promise<void> {
  carts.set(to, (await cartOf(from)).id);
  carts.set(from, "no-cart");
}
export async function placeOrder(cart: Cart, signal: AbortSignal | undefined): Promise<Order> {
  await sleep(Number(process.env["ORDER_MS"] ?? 50), undefined, { signal });
  versions.set(cart.id, cart.version + 1);
  const order = { number: orders.length + 1, cart: cart.id };
  orders.push(order);
  if (process.env["PLACED"]) appendFileSync(process.env["PLACED"], cart.id + "\\n");
  return order;
}
export async function findOrder(number: number): Promise<Order | undefined> {
  return orders[number - 1];
}
`;

/** Whose server action it is. */
export const session = `
export async function userOfSession(): Promise<string> {
  return "next";
}
`;

/** An order that never ends; its client tells when it was cut off. */
export const neverAnswering = `
import { setTimeout as sleep } from "node:timers/promises";
import express from "express";
import { Redis } from "ioredis";
import { RedisStore, SubmitLock } from "submit-lock";
import { submitGuard } from "submit-lock/express";
const redis = new Redis(process.env["REDIS_URL"] ?? "");
const lock = new SubmitLock({ store: new RedisStore(redis) });
const app = express();
const guard = submitGuard({ lock, userId: () => "42" });
app.post("/orders", guard.protect(async () => {
  process.kill(process.pid, "SIGTERM");
  await sleep(20_000); // and looks at no signal
  console.log("charged");
}));
const url = \`http://127.0.0.1:\${process.env["PORT"]}/orders\`;
const server = app.listen(Number(process.env["PORT"]), "127.0.0.1", () => {
  fetch(url, { method: "POST" }).catch(() => {});
});
`;

/** Orders that tell which process serves them. */
export const silentShop = `
import { setTimeout as sleep } from "node:timers/promises";
import express from "express";
import { Redis } from "ioredis";
import { RedisStore, SubmitLock } from "submit-lock";
import { submitGuard } from "submit-lock/express";
const redis = new Redis(process.env["REDIS_URL"] ?? "");
const lock = new SubmitLock({ store: new RedisStore(redis) });
const app = express();
const guard = submitGuard({ lock, userId: () => "silent" });
app.post("/orders", guard.protect(async (_req, res) => {
  res.status(201).send(String(process.pid));
}));
const server = app.listen(Number(process.env["PORT"]), "127.0.0.1");
`;

/** What a reader has at hand by then, for the blocks that do not make it themselves. */
export const atHand = `
import "submit-lock/express";
declare global {
  const SubmitLock: typeof import("submit-lock").SubmitLock;
  const submitGuard: typeof import("submit-lock/express").submitGuard;
  const app: import("express").Express;
  const db: import("@electric-sql/pglite").PGlite;
  const payment: { readonly id: string };
  const express: typeof import("express");
  const lock: import("submit-lock").SubmitLock;
  const redis: import("ioredis").Redis;
  const placeOrder: import("express").RequestHandler;
  const server: import("node:http").Server;
  const sleep: typeof import("node:timers/promises").setTimeout;
  const store: import("submit-lock").LockStore;
  const work: () => Promise<void>;
  const userId: (req: import("express").Request) => string | undefined;
}
`;

/** The shop around the examples of what is exported. */
export const aroundExamples = `
declare global {
  namespace Express {
    interface Request { user?: { readonly id: string } }
  }
  const Redis: typeof import("ioredis").Redis;
  const RedisStore: typeof import("submit-lock").RedisStore;
  const parseIdempotencyKey: typeof import("submit-lock").parseIdempotencyKey;
  const problemOf: typeof import("submit-lock").problemOf;
  const error: unknown;
  const request: import("node:http").IncomingMessage;
  const response: import("node:http").ServerResponse;
  const submitOnce: typeof import("submit-lock/browser").submitOnce;
  const fastify: import("fastify").FastifyInstance;
  const router: import("@koa/router").Router;
  const handler: (...args: unknown[]) => Promise<void>;
  const user: { readonly id: string };
  const userOf: (request: Request) => Promise<string>;
  const orderOf: (request: Request) => Promise<object>;
  const addUp: (of: typeof user, signal: AbortSignal) => Promise<number>;
  const pay: (of: { readonly id: string }) => Promise<object>;
}
declare module "fastify" {
  interface FastifyRequest { user?: { readonly id: string } }
}
export {};
`;
