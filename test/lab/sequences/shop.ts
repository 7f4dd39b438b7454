import { once } from "node:events";
import {
  createServer,
  type IncomingMessage,
  request,
  type Server,
  type ServerResponse,
} from "node:http";
import type { AddressInfo, Socket } from "node:net";
import { buffer } from "node:stream/consumers";
import { setTimeout as sleep } from "node:timers/promises";
import { getRequestListener } from "@hono/node-server";
import express, { type NextFunction, type Request as Req, type Response as Res } from "express";
import { Redis } from "ioredis";
import { submitGuard as expressGuard, type Problem } from "../../../src/express/index.ts";
import { submitGuard as fetchGuard, leaseOf, submissionOf } from "../../../src/fetch/index.ts";
import { isSubmitLockError, RedisStore, SubmitLock } from "../../../src/index.ts";
import { type RedisProxy, startProxy } from "../../support/proxy.ts";

/**
 * What can happen to a request between a page and the shop; 403 is a check in front of the guard. What
 * is late is overtaken by others.
 */
export const fates = [
  ...(["unsent", "unanswered", "cut", "502", "504", "429", "silent"] as const),
  ...(["403", "522", "late", "late"] as const),
];
export type Fate = (typeof fates)[number];

/** How the shop works. */
export interface ShopSetting {
  readonly framework: "express" | "fetch";
  /** From the beginning of an order to its commit, and from there to its answer. */
  readonly beforeMs: number;
  readonly afterMs: number;
  /** How many payments are declined with 402 at first. */
  readonly declines: number;
  /** Of the guard. */
  readonly waitMs: number;
  /** The proxy leaves the shop when the customer leaves the proxy. */
  readonly leaves: boolean;
  /** How a refusal looks: as the guard makes it, as the documents' own format, or as a page. */
  readonly format?: "problem" | "error" | "page" | undefined;
  /** Without bodies, a repeat is a 409 that says that there is an order. */
  readonly keepsBodies?: boolean | undefined;
  /** A busy machine is not taken for a Redis that is away, and loses no lock. */
  readonly isPatient?: boolean | undefined;
}

interface Order {
  readonly number: number;
  readonly cart: string;
}

/** The table of orders: a submission is in it once, as a unique column makes it. */
class Orders {
  readonly #all: Order[] = [];
  readonly #bySubmission = new Map<string, Order>();

  place(cart: string, submission: string | undefined): Order {
    const known = this.#bySubmission.get(submission ?? "");
    if (known !== undefined) return known;
    const order = { number: this.#all.length + 1, cart };
    this.#all.push(order);
    if (submission !== undefined) this.#bySubmission.set(submission, order);
    return order;
  }

  of(cart: string): number[] {
    return this.#all.filter((order) => order.cart === cart).map(({ number }) => number);
  }
}

/** A server of the shop with a guard of its own, which can be killed. */
class ShopServer {
  readonly #lock: SubmitLock;
  readonly #redis: Redis;
  readonly #proxy: RedisProxy;
  readonly #server: Server;
  #isDead = false;

  private constructor(proxy: RedisProxy, orders: Orders, setting: ShopSetting) {
    this.#proxy = proxy;
    this.#redis = new Redis(proxy.port, "127.0.0.1", { retryStrategy: () => 20 });
    this.#redis.on("error", () => {});
    const short = { ttlMs: 400, acquireTimeoutMs: 150, commandTimeoutMs: 50 };
    const patient = { ttlMs: 60_000, acquireTimeoutMs: 10_000, commandTimeoutMs: 5_000 };
    const times = setting.isPatient ? patient : short;
    this.#lock = new SubmitLock({ store: new RedisStore(this.#redis), ...times });
    const never = new Promise<never>(() => {});
    let declines = setting.declines;
    const place = async (cart: string, submission: string | undefined, signal?: AbortSignal) => {
      await sleep(setting.beforeMs);
      if (this.#isDead) return never;
      signal?.throwIfAborted();
      if (declines-- > 0) return { status: 402, body: { code: "declined" } };
      const { number } = orders.place(cart, submission);
      await sleep(setting.afterMs);
      return this.#isDead ? never : { status: 201, body: { number } };
    };
    const listener = setting.framework === "express" ? onExpress : onFetch;
    this.#server = createServer(listener(this.#lock, setting, place));
  }

  static async start(redisPort: number, orders: Orders, setting: ShopSetting): Promise<ShopServer> {
    const started = new ShopServer(await startProxy(redisPort), orders, setting);
    started.#server.listen(0, "127.0.0.1");
    await once(started.#server, "listening");
    return started;
  }

  get port(): number {
    return (this.#server.address() as AddressInfo).port;
  }

  async takeRedisAway(isAway: boolean): Promise<void> {
    if (this.#isDead) return;
    if (isAway) this.#proxy.resetAll();
    await this.#proxy.refuse(isAway);
  }

  /** Nothing that it has begun goes on, neither in Redis nor in the table of orders. */
  async kill(): Promise<void> {
    if (this.#isDead) return;
    this.#isDead = true;
    this.#server.close();
    this.#server.closeAllConnections();
    this.#redis.disconnect();
    this.#proxy.resetAll();
    await this.#proxy.stop();
    await this.#lock.close({ timeoutMs: 0 });
  }
}

type Place = (
  cart: string,
  submission: string | undefined,
  signal?: AbortSignal,
) => Promise<{ status: number; body: object }>;

/** A refusal in the shop's format. Its header is all that it has in common with another one. */
function refusal({ code }: Problem, format: ShopSetting["format"]): string {
  if (format === "page") return "<!doctype html><title>Please wait</title>";
  return JSON.stringify(format === "error" ? { error: code } : { code });
}

const headersOf = ({ code, headers }: Problem) => ({ ...headers, "submit-lock-code": code });

function onExpress(lock: SubmitLock, setting: ShopSetting, place: Place) {
  const { format, keepsBodies = true, waitMs } = setting;
  const app = express();
  const userId = (req: Req) => req.get("x-user") ?? req.body?.user ?? req.body?.cart;
  const submissionId = (req: Req) => req.body?.submissionId;
  const answer = (_req: Req, res: Res, _next: unknown, { problem }: { problem: Problem }) => {
    res.status(problem.status).set(headersOf(problem)).type("json").send(refusal(problem, format));
  };
  const guard = expressGuard({
    lock,
    userId,
    idempotency: { submissionId, waitMs, ...(!keepsBodies && { maxBodyBytes: 0 }) },
    onContended: answer,
    onMismatch: answer,
    onUnavailable: answer,
  });
  app.use(express.json({ limit: "16mb" }), express.urlencoded({ extended: false }));
  const handler = async (req: Req, res: Res) => {
    const { submission, submitLease } = req;
    const { status, body } = await place(req.body.cart, submission?.id, submitLease?.signal);
    if (req.is("urlencoded") && "number" in body) res.redirect(303, `/placed/${body.number}`);
    else res.status(status).json(body);
  };
  app.post("/orders", guard.protect(handler));
  app.use((error: unknown, _req: Req, res: Res, _next: NextFunction) => {
    if (isSubmitLockError(error)) res.status(503).set(headersOfLost(error)).end();
    else res.sendStatus(500);
  });
  return app;
}

const headersOfLost = ({ code }: { readonly code: string }) =>
  ({ "submit-lock-code": code.toLowerCase() }) as Record<string, string>;

function onFetch(lock: SubmitLock, setting: ShopSetting, place: Place) {
  const { format, keepsBodies = true, waitMs } = setting;
  const isForm = (request: Request) => request.headers.get("content-type")?.includes("urlencoded");
  const fieldOf = async (request: Request, name: string) =>
    isForm(request) ? (await request.clone().formData()).get(name) : undefined;
  const userId = async (request: Request) =>
    request.headers.get("x-user") ??
    ((await fieldOf(request, "user")) as string) ??
    ((await fieldOf(request, "cart")) as string);
  const submissionId = async (request: Request) =>
    (await fieldOf(request, "submissionId")) as string | undefined;
  // A page has sent more than the 1 MiB that a fingerprint reads.
  const fingerprint = async (request: Request) => (await request.clone().text()).slice(0, 1_000);
  const bodies = !keepsBodies && { maxBodyBytes: 0 };
  const answer = (_request: Request, { problem }: { problem: Problem }) => {
    const { status } = problem;
    return new Response(refusal(problem, format), { status, headers: headersOf(problem) });
  };
  const guard = fetchGuard({
    lock,
    userId,
    idempotency: { submissionId, waitMs, fingerprint, ...bodies },
    onContended: answer,
    onMismatch: answer,
    onUnavailable: answer,
  });
  const handler = guard.protect(async (request) => {
    const ofForm = await fieldOf(request, "cart");
    const cart = (ofForm ?? ((await request.json()) as { cart: string }).cart) as string;
    const submission = submissionOf(request)?.id;
    const { status, body } = await place(cart, submission, leaseOf(request)?.signal);
    if (!isForm(request) || !("number" in body)) return Response.json(body, { status });
    return new Response(null, { status: 303, headers: { location: `/placed/${body.number}` } });
  });
  const listener = (request: Request) =>
    handler(request).catch((error) =>
      isSubmitLockError(error)
        ? new Response(null, { status: 503, headers: headersOfLost(error) })
        : new Response(null, { status: 500 }),
    );
  return getRequestListener(listener);
}

/** A shop behind a proxy, on a network that can be lost. */
export class Shop {
  readonly #orders = new Orders();
  readonly #redisPort: number;
  readonly #sockets = new Set<Socket>();
  readonly #front = createServer((req, res) => void this.#forward(req, res));
  #setting!: ShopSetting;
  #server: ShopServer | undefined;
  #restarting: Promise<void> | undefined;
  #isOffline = false;
  #fates: Fate[] = [];
  /** How many orders the proxy was sent. */
  received = 0;
  /** Answers what is not an order. */
  serve: (req: IncomingMessage, res: ServerResponse) => void = (_req, res) => {
    res.writeHead(404).end();
  };

  private constructor(redisPort: number) {
    this.#redisPort = redisPort;
    this.#front.on("connection", (socket) => {
      if (this.#isOffline) socket.destroy();
      this.#sockets.add(socket);
      socket.once("close", () => this.#sockets.delete(socket));
    });
  }

  static async open(redisPort: number): Promise<Shop> {
    const shop = new Shop(redisPort);
    shop.#front.listen(0, "127.0.0.1");
    await once(shop.#front, "listening");
    return shop;
  }

  get origin(): string {
    return `http://127.0.0.1:${(this.#front.address() as AddressInfo).port}`;
  }

  get url(): string {
    return `${this.origin}/orders`;
  }

  /** A new server, which works like this. */
  async begin(setting: ShopSetting): Promise<void> {
    await this.kill();
    this.#setting = setting;
    await this.heal();
  }

  ordersOf(cart: string): number[] {
    return this.#orders.of(cart);
  }

  /** What happens to the next requests. */
  strike(fate: Fate, count: number): void {
    this.#fates.push(...Array<Fate>(count).fill(fate));
  }

  goOffline(isOffline: boolean): void {
    this.#isOffline = isOffline;
    if (isOffline) for (const socket of this.#sockets) socket.destroy();
  }

  async takeRedisAway(isAway: boolean): Promise<void> {
    await this.#server?.takeRedisAway(isAway);
  }

  async kill(): Promise<void> {
    await this.#restarting;
    const server = this.#server;
    this.#server = undefined;
    await server?.kill();
  }

  /** One server, also of two kills that are repaired at the same time. */
  async restart(): Promise<void> {
    if (this.#server !== undefined) return;
    this.#restarting ??= this.#start().finally(() => {
      this.#restarting = undefined;
    });
    await this.#restarting;
  }

  async #start(): Promise<void> {
    this.#server = await ShopServer.start(this.#redisPort, this.#orders, this.#setting);
    this.#setting = { ...this.#setting, declines: 0 };
  }

  /** Everything works again. */
  async heal(): Promise<void> {
    this.#fates = [];
    this.goOffline(false);
    await this.restart();
    await this.takeRedisAway(false);
  }

  async close(): Promise<void> {
    this.#front.close();
    this.#front.closeAllConnections();
    await this.kill();
  }

  async #forward(req: IncomingMessage, res: ServerResponse): Promise<void> {
    if (req.method !== "POST") return this.serve(req, res);
    this.received++;
    const fate = this.#fates.shift();
    if (fate === "unsent") return void req.socket.destroy();
    if (fate === "403" || fate === "522") return void res.writeHead(Number(fate)).end();
    if (fate === "502" || fate === "429" || this.#server === undefined) {
      res.writeHead(fate === "429" ? 429 : 502, fate === "429" ? { "retry-after": "1" } : {});
      return void res.end();
    }
    const body = await buffer(req).catch(() => undefined);
    if (body === undefined) return;
    if (fate === "late") await sleep(80);
    const { method, headers, url } = req;
    // A server can be killed while it is sent a body.
    const port = this.#server?.port;
    if (port === undefined) return void res.writeHead(502).end();
    const upstream = request({ host: "127.0.0.1", port, method, path: url, headers });
    const answer = new Promise<IncomingMessage | undefined>((resolve) => {
      upstream.once("response", resolve).once("error", () => resolve(undefined));
    });
    upstream.end(body);
    if (this.#setting.leaves) res.once("close", () => upstream.destroy());
    if (fate === "504") {
      res.writeHead(504).end();
      return;
    }
    const response = await answer;
    const text = response && (await buffer(response).catch(() => undefined));
    if (fate === "silent") return;
    if (fate === "unanswered") return void req.socket.destroy();
    if (response === undefined || text === undefined) return void res.writeHead(502).end();
    res.writeHead(response.statusCode ?? 502, response.headers);
    if (fate !== "cut") return void res.end(text);
    res.write(text.subarray(0, text.length / 2), () => req.socket.destroy());
  }
}
