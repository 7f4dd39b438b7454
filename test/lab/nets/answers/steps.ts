import { createServer } from "node:http";
import { Readable } from "node:stream";
import { pipeline } from "node:stream/promises";
import { setTimeout as sleep } from "node:timers/promises";
import fc from "fast-check";
import { HTTPException } from "hono/http-exception";
import { stream, streamSSE, streamText } from "hono/streaming";
import { ForeignResponse } from "../../../http/foreign-response.ts";
import type { Framework } from "../../../http/frameworks.ts";
import { listen } from "../../../http/http-client.ts";
import type { Turn } from "../../../http/turn.ts";

/** What a handler does next: the name of a row of its family, and the argument. */
export type Step = readonly [name: string, given?: unknown];

/** A value that a handler of Fastify returns. */
class Returned {
  readonly value: unknown;
  constructor(value: unknown) {
    this.value = value;
  }
}

// biome-ignore lint/suspicious/noExplicitAny: what each family answers with, and the row's argument.
type Run = (target: any, given: any) => unknown;
type Row = readonly [run: Run, given?: fc.Arbitrary<unknown>];
type Rows = Readonly<Record<string, Row>>;

/** Longer than what is kept; by its name, so that a program can be read. */
const textOf = (text: string): string => (text === "LONG" ? "x".repeat(70_000) : text);
const bytesOf = (text: string): Buffer => Buffer.from(textOf(text));

const circle: object[] = [];
circle.push(circle);
const objects: Readonly<Record<string, unknown>> = {
  order: { a: 1, secret: "s" },
  list: [1, { b: null }],
  dated: { at: new Date(0), a: Number.NaN },
  own: { toJSON: () => ({ a: 2 }) },
  circle,
  big: { a: 1n },
};
const objectOf = (name: string): unknown => objects[name];

const short = ["placed", "", '{"a":1,"b":2}', '{ "a": 1.0 }', "\u00e9\u20ac", "<p>"];
const text = fc.constantFrom(...short, "LONG");
const object = fc.constantFrom(...Object.keys(objects));
const good = [200, 201, 202, 204, 205, 206, 301, 303, 304];
const status = fc.constantFrom(...good, 400, 404, 409, 422, 500, 503);
const type = fc.constantFrom("text/html", "json", "text/csv", "application/octet-stream", "png");
type Header = [name: string, value: string | string[]];
const header = fc.constantFrom<Header>(
  ["location", "/orders/7"],
  ["etag", '"v1"'],
  ["cache-control", "no-store"],
  ["x-kept", "k"],
  ["X-Kept", ["k", "l"]],
  ["x-other", "o"],
  ["vary", "origin"],
  ["vary", "Accept-Language"],
  ["link", ["</a>; rel=next", "</b>; rel=prev"]],
  ["content-language", "de"],
  ["content-disposition", "attachment"],
  ["set-cookie", ["a=1", "b=2"]],
  ["content-type", "text/plain"],
  ["content-type", "text/plain; charset=UTF-8"],
  ["content-type", "application/json"],
  ["content-type", "application/problem+json"],
  ["content-type", "text/csv"],
  ["content-type", "application/octet-stream"],
);
const chunk = fc.record({
  text: fc.constantFrom(...short),
  as: fc.constantFrom("text", "bytes", "latin1", "base64"),
});

interface Source {
  readonly chunks: string[];
  readonly as: "text" | "bytes";
  /** Before which chunk it pauses, and before which it fails. */
  readonly pause: number;
  readonly fails: number;
}
const source = fc.record<Source>({
  chunks: fc.array(fc.constantFrom(...short), { maxLength: 4 }),
  as: fc.constantFrom("text", "bytes"),
  pause: fc.nat({ max: 6 }),
  fails: fc.oneof({ weight: 5, arbitrary: fc.constant(-1) }, fc.nat({ max: 4 })),
});

const failure = () => Object.assign(new Error("the handler has failed"), { status: 418 });
const fail = () => {
  throw failure();
};

async function* chunksOf({ as, chunks, fails, pause }: Source) {
  for (const [n, each] of chunks.entries()) {
    if (n === pause) await sleep(2);
    if (n === fails) fail();
    yield as === "text" ? each : Buffer.from(each);
  }
  if (fails >= chunks.length) fail();
}

const readable = (given: Source): Readable => Readable.from(chunksOf(given));

function webStream(given: Source): ReadableStream {
  const chunks = chunksOf(given);
  return new ReadableStream({
    async pull(controller) {
      const { done, value } = await chunks.next();
      if (done) controller.close();
      else controller.enqueue(value);
    },
    cancel: () => void chunks.return(undefined),
  });
}

interface Init {
  readonly status: number;
  readonly headers: readonly Header[];
}
const init = fc.record<Init>({ status, headers: fc.array(header, { maxLength: 2 }) });
const hasBody = (status: number) => ![204, 205, 304].includes(status);

function responseOf({ headers, status }: Init, body: ConstructorParameters<typeof Response>[0]) {
  const pairs = headers.flatMap(([name, value]) =>
    [value].flat().map((each): [string, string] => [name, each]),
  );
  return new Response(hasBody(status) ? body : null, { status, headers: pairs });
}

let behind: Promise<number> | undefined;

/** The answer of another server, which sends its body in chunks. */
async function proxied([{ status }, { chunks }]: readonly [Init, Source]): Promise<Response> {
  behind ??= listen(
    createServer((req, res) => {
      const [, code, text = ""] = (req.url ?? "").split("/");
      res.writeHead(Number(code), { location: "/orders/7", "content-type": "text/plain" });
      for (const each of decodeURIComponent(text).split(",")) res.write(each);
      res.end();
    }).unref(),
  );
  const url = `http://127.0.0.1:${await behind}/${status}/${encodeURIComponent(chunks.join())}`;
  return await fetch(url, { method: "POST", redirect: "manual" });
}

/** A `Response` that the handler did not make itself. */
const others: Record<string, (given: readonly [Init, Source]) => Response | Promise<Response>> = {
  proxied,
  ofLibrary: ([{ headers, status }, { chunks }]) => {
    const pairs = headers.flatMap(([name, value]) =>
      [value].flat().map((each): [string, string] => [name, each]),
    );
    const text = hasBody(status) ? chunks.join("") : null;
    return new ForeignResponse(status, text, pairs) as unknown as Response;
  },
  cloned: ([init, { chunks }]) => responseOf(init, chunks.join("")).clone(),
  cloneRead: async ([init, { chunks }]) => {
    const response = responseOf(init, chunks.join(""));
    await response.clone().text();
    return response;
  },
  redirected: () => Response.redirect("http://shop.example/orders/7", 303),
};
const ofOthers = (run: (make: (typeof others)[string]) => Run): Rows =>
  Object.fromEntries(
    Object.entries(others).map(([name, make]) => [
      `${name} response`,
      [run(make), fc.tuple(init, source)],
    ]),
  );

const anywhere: Rows = {
  pause: [() => sleep(2)],
  turn: [() => new Promise(setImmediate)],
};
const errors: Rows = { throw: [fail] };

const encoded = ({ as, text }: { text: string; as: string }) => {
  if (as === "bytes") return [Buffer.from(text)];
  return as === "text" ? [text] : [Buffer.from(text).toString(as as "latin1"), as];
};

/** A family's ways to set the head, to write, and to say how the answer ends. */
interface Family {
  target(turn: Turn): unknown;
  readonly heads: Rows;
  readonly writes: Rows;
  readonly ends: Rows;
}

const setting =
  (name: string, made: (given: never) => unknown = (given) => given): Run =>
  (target, given) => {
    target[name] = made(given as never);
  };

/** Node's own response. */
const node: Family = {
  target: ({ res }) => res,
  heads: {
    statusCode: [setting("statusCode"), status],
    setHeader: [(res, [name, value]) => res.setHeader(name, value), header],
    appendHeader: [(res, [name, value]) => res.appendHeader(name, value), header],
    removeHeader: [(res, [name]) => res.removeHeader(name), header],
    earlyHints: [(res) => res.headersSent || res.writeEarlyHints({ link: "</a>; rel=preload" })],
  },
  writes: {
    writeHead: [(res, given) => res.writeHead(given), status],
    writeHeadOf: [
      (res, [code, given]) => res.writeHead(code, Object.fromEntries(given)),
      fc.tuple(status, fc.array(header, { maxLength: 2 })),
    ],
    writeHeadFlat: [
      (res, [code, given]) => res.writeHead(code, "Done", given),
      fc.tuple(status, header),
    ],
    flushHeaders: [(res) => res.flushHeaders()],
    write: [(res, given) => res.write(...encoded(given)), chunk],
    trailers: [
      (res) => {
        if (!res.headersSent) res.setHeader("trailer", "x-sum");
        res.addTrailers({ "x-sum": "7" });
      },
    ],
  },
  ends: {
    end: [(res) => res.end()],
    endWith: [(res, given) => res.end(...encoded(given)), chunk],
    pipe: [
      (res, given) =>
        readable(given)
          .on("error", () => res.destroy())
          .pipe(res),
      source,
    ],
    pipeline: [(res, given) => pipeline(readable(given), res), source],
    destroy: [(res) => res.destroy()],
  },
};

const body = (bodyOf: (given: never) => unknown): Run => setting("body", bodyOf);
const reply =
  (bodyOf: (given: never) => unknown = (given) => given): Run =>
  (reply, given) => {
    reply.send(bodyOf(given as never));
    return new Returned(reply);
  };
const returned =
  (made: (given: never) => unknown): Run =>
  (_reply, given) =>
    new Returned(made(given as never));
// biome-ignore lint/suspicious/noExplicitAny: the context of Hono, and the row's argument.
type Respond = (c: any, given: any) => unknown;
const respond =
  (make: Respond): Run =>
  async ({ c, respond }, given) =>
    respond(await make(c, given));
const inStream =
  (streaming: typeof stream, write: "write" | "writeSSE"): Respond =>
  (c, given) =>
    streaming(c, async (to) => {
      for await (const each of chunksOf(given)) {
        // biome-ignore lint/suspicious/noExplicitAny: a stream of events has one method more.
        await (to as any)[write](write === "write" ? each : { data: `${each}` });
      }
    });

const families: Readonly<Record<Framework["family"], Family>> = {
  express: {
    target: ({ express, fail }) => Object.assign(Object(express?.res), { fail }),
    heads: {
      ...node.heads,
      status: [(res, given) => res.status(given), status],
      set: [(res, [name, value]) => res.set(name, value), header],
      append: [(res, [name, value]) => res.append(name, value), header],
      type: [(res, given) => res.type(given), type],
      location: [(res) => res.location("/orders/8")],
      links: [(res) => res.links({ next: "/a" })],
      vary: [(res) => res.vary("Accept")],
      cookie: [(res) => res.cookie("c", "1")],
      attachment: [(res) => res.attachment("a.txt")],
    },
    writes: node.writes,
    ends: {
      ...node.ends,
      json: [(res, given) => res.json(objectOf(given)), object],
      send: [(res, given) => res.send(textOf(given)), text],
      sendBytes: [(res, given) => res.send(bytesOf(given)), text],
      sendObject: [(res, given) => res.send(objectOf(given)), object],
      sendStatus: [(res, given) => res.sendStatus(given), status],
      redirect: [(res) => res.redirect("/orders/9")],
      redirect303: [(res) => res.redirect(303, "/orders/9")],
      next: [(res) => res.fail(failure())],
    },
  },
  koa: {
    target: ({ ctx }) => ctx,
    heads: {
      status: [setting("status"), status],
      set: [(ctx, [name, value]) => ctx.set(name, value), header],
      append: [(ctx, [name, value]) => ctx.append(name, value), header],
      remove: [(ctx, [name]) => ctx.remove(name), header],
      type: [setting("type"), type],
      message: [setting("message", () => "Done")],
      etag: [setting("etag", () => "v2")],
      vary: [(ctx) => ctx.vary("Accept")],
      cookie: [(ctx) => void ctx.cookies.set("c", "1")],
      attachment: [(ctx) => ctx.attachment("a.txt")],
    },
    writes: { flush: [(ctx) => ctx.flushHeaders()] },
    ends: {
      text: [body(textOf), text],
      bytes: [body(bytesOf), text],
      object: [body(objectOf), object],
      number: [body(() => 7)],
      null: [body(() => null)],
      stream: [body(readable), source],
      web: [body(webStream), source],
      response: [body((given: Init) => responseOf(given, "a")), init],
      blob: [body(() => new Blob(["a", "b"], { type: "text/plain" }))],
      redirect: [(ctx) => ctx.redirect("/orders/9")],
      ctxThrow: [(ctx) => ctx.throw(422, "no stock")],
    },
  },
  fastify: {
    target: ({ reply }) => reply,
    heads: {
      code: [(reply, given) => void reply.code(given), status],
      header: [(reply, [name, value]) => void reply.header(name, value), header],
      removeHeader: [(reply, [name]) => void reply.removeHeader(name), header],
      type: [(reply, given) => void reply.type(given), type],
      trailer: [(reply) => void reply.trailer("x-sum", async () => "7")],
      serializer: [
        (reply) => void reply.serializer((value: unknown) => `[${JSON.stringify(value)}]`),
      ],
      rawHeader: [(reply) => void reply.raw.setHeader("x-raw", "1")],
    },
    writes: {},
    ends: {
      send: [reply(textOf), text],
      sendBytes: [reply(bytesOf), text],
      sendObject: [reply(objectOf), object],
      sendNothing: [reply()],
      sendNull: [reply(() => null)],
      sendStream: [reply(readable), source],
      sendWeb: [reply(webStream), source],
      sendResponse: [reply((given: Init) => responseOf(given, "a")), init],
      sendError: [reply(failure)],
      return: [returned(textOf), text],
      returnObject: [returned(objectOf), object],
      returnStream: [returned(readable), source],
      redirect: [(reply) => new Returned(reply.redirect("/orders/9"))],
      callNotFound: [
        (reply) => {
          reply.callNotFound();
          return new Returned(reply);
        },
      ],
    },
  },
  fetch: {
    target: ({ hono }) => hono,
    heads: {
      status: [({ c }, given) => c.status(given), status],
      header: [({ c }, [name, value]) => c.header(name, `${value}`), header],
      append: [({ c }, [name, value]) => c.header(name, `${value}`, { append: true }), header],
    },
    writes: {},
    ends: {
      text: [respond((c, given) => c.text(textOf(given))), text],
      html: [respond((c, given) => c.html(textOf(given))), text],
      json: [respond((c, given) => c.json(objectOf(given))), object],
      body: [respond((c, given) => c.body(textOf(given))), text],
      noBody: [respond((c) => c.body(null))],
      bodyStream: [respond((c, given) => c.body(webStream(given))), source],
      redirect: [respond((c) => c.redirect("/orders/9"))],
      notFound: [respond((c) => c.notFound())],
      response: [
        respond((_c, [init, body]) => responseOf(init, textOf(body))),
        fc.tuple(init, text),
      ],
      nothing: [respond((_c, init) => responseOf(init, null)), init],
      bytes: [respond((_c, [init, body]) => responseOf(init, bytesOf(body))), fc.tuple(init, text)],
      stream: [
        respond((_c, [init, given]) => responseOf(init, webStream(given))),
        fc.tuple(init, source),
      ],
      jsonOf: [respond((_c, given) => Response.json(objectOf(given))), object],
      ...ofOthers((make) => respond((_c, given) => make(given))),
      form: [respond(() => new Response(new URLSearchParams({ a: "1" })))],
      blob: [respond(() => new Response(new Blob(["a", "b"], { type: "text/plain" })))],
      streaming: [respond(inStream(stream, "write")), source],
      streamingText: [respond(inStream(streamText as never, "write")), source],
      events: [respond(inStream(streamSSE as never, "writeSSE")), source],
      exception: [respond(() => Promise.reject(new HTTPException(422, { message: "no stock" })))],
      own: [respond(() => Promise.reject(new HTTPException(402, { res: new Response("pay") })))],
    },
  },
};

/** Handlers of Koa and Fastify may write Node's response by hand. */
const raw: Rows = Object.fromEntries(
  Object.entries({ ...node.heads, ...node.writes, ...node.ends }).map(([name, row]) => [
    `raw ${name}`,
    row,
  ]),
);
const isRawEnd = (name: string) => name.startsWith("raw ") && name.slice(4) in node.ends;

function steps(rows: Rows, maxLength: number): fc.Arbitrary<Step[]> {
  const all = Object.entries(rows).map(([name, [, given]]) =>
    given === undefined ? fc.constant<Step>([name]) : given.map((value): Step => [name, value]),
  );
  return fc.array(fc.oneof(...all), { maxLength });
}
const rarely = (some: fc.Arbitrary<Step[]>, weight: number) =>
  fc.oneof({ weight, arbitrary: fc.constant<Step[]>([]) }, { weight: 1, arbitrary: some });
const joined = (...parts: fc.Arbitrary<Step[]>[]) => fc.tuple(...parts).map((all) => all.flat());

/** The steps of a handler: usually in an order that makes sense. */
export function scriptsOf(family: Framework["family"]): fc.Arbitrary<Step[]> {
  const { ends, heads, writes } = families[family];
  const usual = joined(
    steps({ ...heads, ...anywhere }, 4),
    rarely(steps(errors, 1), 9),
    steps({ ...writes, ...anywhere }, 3),
    steps(ends, 1),
    rarely(steps({ ...heads, ...writes, ...ends, ...anywhere, ...errors }, 2), 3),
  );
  if (family !== "koa" && family !== "fastify") return usual;
  const hand = fc.constant<Step[]>([["by hand"]]);
  const byHand = joined(
    steps(heads, 2),
    hand,
    steps({ ...raw, ...anywhere }, 5),
    rarely(steps(errors, 1), 5),
  );
  return fc.oneof({ weight: 4, arbitrary: usual }, { weight: 1, arbitrary: byHand });
}

/** Runs the steps as a handler of the family, and ends the answer where they do not. */
export async function perform(family: Framework["family"], script: readonly Step[], turn: Turn) {
  const { ends, heads, target, writes } = families[family];
  const own: Rows = { ...heads, ...writes, ...ends, ...anywhere, ...errors };
  const given = target(turn);
  let isEnded = false;
  let isByHand = false;
  // Fastify takes an undefined payload for one that is sent later.
  let value: unknown = null;
  // Frameworks append to arrays that they are given.
  for (const [name, argument] of structuredClone(script)) {
    if (name === "by hand") {
      turn.byHand();
      isByHand = true;
      continue;
    }
    const [run] = (own[name] ?? raw[name]) as Row;
    const outcome = await run(name in own ? given : turn.res, argument);
    if (outcome instanceof Returned) value = outcome.value;
    isEnded ||= name in ends || isRawEnd(name);
  }
  if (!isEnded && (family === "express" || isByHand)) turn.res.end();
  return family === "fastify" && !isByHand ? value : undefined;
}
