import { createServer, type IncomingMessage, type Server } from "node:http";
import { parse as parseForm } from "node:querystring";
import { buffer } from "node:stream/consumers";
import multer from "multer";
import { MemoryStore, SubmitLock } from "../../../../src/index.ts";
import type { AcquireRequest } from "../../../../src/lock/store.ts";
import type { Framework } from "../../../http/frameworks.ts";
import { type HttpClient, listen, openClient, type Submit } from "../../../http/http-client.ts";
import type { Layer } from "../../../http/turn.ts";
import { type InputName, inputs } from "./shapes.ts";

interface Parsed {
  body?: unknown;
  files?: unknown;
}

/** By the type. Those that people mount are not all linear themselves. */
const parsers: Readonly<Record<string, (bytes: Buffer) => unknown>> = {
  "application/json": (bytes) => JSON.parse(bytes.toString()),
  "application/x-www-form-urlencoded": (bytes) =>
    parseForm(bytes.toString(), undefined, undefined, { maxKeys: 0 }),
  "text/plain": (bytes) => bytes.toString(),
  "application/octet-stream": (bytes) => bytes,
};
const upload = multer().any();

async function parse(req: IncomingMessage & Parsed): Promise<Parsed> {
  const [type = ""] = (req.headers["content-type"] ?? "").split(";");
  if (type === "multipart/form-data") {
    await new Promise((resolve, reject) => {
      upload(req as never, {} as never, (error) => (error ? reject(error) : resolve(undefined)));
    });
    return req;
  }
  const parser = Object.hasOwn(parsers, type) ? parsers[type] : undefined;
  return parser === undefined ? {} : { body: parser(await buffer(req)) };
}

const parsing: Layer = {
  express: () => (req, _res, next) =>
    void parse(req).then((parsed) => next(Object.assign(req, parsed) && undefined), next),
  koa: () => async (ctx, next) => {
    Object.assign(ctx.request, await parse(ctx.req));
    await next();
  },
  fastify(app, handler) {
    app.addHook("preHandler", async (request) => {
      Object.assign(request, await parse(request.raw));
    });
    return handler;
  },
  // The guard reads the body itself.
  hono: () => async (_c, next) => await next(),
};

/** A text of the client's that another side hands to the guard. */
const given = { answer: "", headers: "{}", value: "" };

/** Every submission was completed, with whatever is in the record. */
class RecordStore extends MemoryStore {
  override acquire(request: AcquireRequest): void {
    request.deadlineMs = 0;
    const head = `1${"-".repeat(22)}00000000-0000-4000-8000-000000000000=`;
    const { headers, value } = given;
    const more = value === "" ? "" : `,"b":${Buffer.byteLength(value)},"v":1`;
    const described = `{"s":201,"t":1,"h":${headers}${more}}`;
    const length = Buffer.byteLength(described).toString(16).padStart(6, "0");
    const record = head + length + described + value;
    request.answer({ kind: "completed", record, storeTimeMs: performance.now() });
  }
}

/** What identifies a submission; "none" for a shop without a guard. */
type Guard = "none" | "key" | "submissionId" | "record";

/** A shop whose orders cost next to nothing. */
class CostShop {
  readonly #server: Server;
  readonly #lock: SubmitLock | undefined;
  #client: HttpClient | undefined;

  constructor(framework: Framework, guard: Guard) {
    const store = guard === "record" ? new RecordStore() : new MemoryStore();
    this.#lock = guard === "none" ? undefined : new SubmitLock({ store });
    const listener = framework.listener({
      lock: this.#lock,
      unparsed: true,
      outside: [parsing],
      guard: {
        idempotency: {
          maxBodyBytes: 1_048_576,
          ...(guard === "submissionId" && {
            submissionId: ({ headers }) => headers["x-cart"]?.toString(),
          }),
        },
      },
      handler: ({ answer }) => answer(201, given.answer || { order: "placed" }),
    });
    this.#server = createServer(
      { maxHeaderSize: 10_000_000, keepAliveTimeout: 3_600_000 },
      listener,
    );
  }

  async open(): Promise<this> {
    this.#client = openClient(1, await listen(this.#server));
    return this;
  }

  async submit(submit: Submit): Promise<number> {
    return (await (this.#client as HttpClient).call(submit).reply).status;
  }

  async close(): Promise<void> {
    this.#client?.close();
    this.#server.closeAllConnections();
    this.#server.close();
    await this.#lock?.close({ timeoutMs: 0 });
  }
}

/** Processor time in ms. */
export interface Cost {
  /** Of an order, its repeat and a refusal. */
  readonly sum: number;
  /** Of the longest turns of the event loop, the longest first, where that was asked for. */
  readonly turns: readonly number[];
}

/** A framework with and without guards: what a text at one of the inputs costs there. */
export class Scales {
  readonly #framework: Framework;
  readonly #shops = new Map<Guard, Promise<CostShop>>();
  #visits = 0;

  constructor(framework: Framework) {
    this.#framework = framework;
  }

  async cost(name: InputName, text: string, isGuarded: boolean, asksTurns = false): Promise<Cost> {
    const shop = await this.#shop(isGuarded ? guardOf(name) : "none");
    given.answer = name === "an answer that echoes" ? text : "";
    given.headers = name === "a record's headers" ? text : "{}";
    given.value = name === "a record's value" ? text : "";
    const submit = submitOf(name, text, `visit-${this.#visits++}`);
    const { "x-user": _user, ...anonymous } = submit.headers as Record<string, string>;
    const turns = asksTurns ? watchTurns() : () => [];
    const from = process.cpuUsage();
    await shop.submit(submit);
    await shop.submit(submit);
    await shop.submit({ ...submit, headers: anonymous });
    return { sum: msSince(from), turns: turns() };
  }

  async close(): Promise<void> {
    for (const shop of this.#shops.values()) await (await shop).close();
  }

  async #shop(guard: Guard): Promise<CostShop> {
    const shop = this.#shops.get(guard) ?? new CostShop(this.#framework, guard).open();
    this.#shops.set(guard, shop);
    return await shop;
  }
}

function msSince(from: NodeJS.CpuUsage): number {
  const { system, user } = process.cpuUsage(from);
  return (system + user) / 1_000;
}

/** @returns a function that ends the watch, and tells the processor time of the longest turns. */
function watchTurns(): () => number[] {
  const turns: number[] = [];
  let from = process.cpuUsage();
  let isOver = false;
  const turn = () => {
    turns.push(msSince(from));
    from = process.cpuUsage();
    if (!isOver) setImmediate(turn);
  };
  setImmediate(turn);
  return () => {
    isOver = true;
    return turns.sort((a, b) => b - a).slice(0, 12);
  };
}

function guardOf(name: InputName): Guard {
  if (name.startsWith("a record's")) return "record";
  return name === "a header that submissionId reads" ? "submissionId" : "key";
}

function submitOf(name: InputName, text: string, visit: string): Submit {
  const { header, type } = inputs[name] as { header?: string; type?: string };
  const headers = { "x-user": visit, "idempotency-key": visit };
  return {
    headers: {
      ...headers,
      "content-type": type ?? "application/json",
      ...(header !== undefined && { [header]: text }),
    },
    path: name === "query" ? `/orders?${text}` : "/orders",
    body: type === undefined ? "[1]" : Buffer.from(text),
  };
}
