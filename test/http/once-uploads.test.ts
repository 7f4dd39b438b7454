import { mkdtempSync, rmSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import type { RequestHandler } from "express";
import type { Middleware } from "koa";
import multer from "multer";
import { afterAll, describe, expect, test } from "vitest";
import { type Framework, newest } from "./frameworks.ts";
import { layerThatWaits, onExpress, onKoa } from "./layers.ts";
import {
  codeOf,
  type OnceShop,
  type OnceSubmit,
  openOnce,
  orderKey,
  unmarked,
} from "./once-shop.ts";
import type { Layer } from "./turn.ts";

const folder = mkdtempSync(join(tmpdir(), "uploads-"));
afterAll(() => rmSync(folder, { recursive: true }));

const fields = [{ name: "list" }, { name: "photo" }];

interface Parser {
  readonly name: string;
  readonly family: Framework["family"];
  readonly layer: Layer;
  /** Takes files of several fields, and several files of a field. */
  readonly takes: "one" | "many of one field" | "any";
  /** The parts of a form are compared byte for byte, in the order in which they were sent. */
  readonly comparesBytes?: true;
}

/** What @koa/multer makes of multer. */
const koaMulter =
  (parser: RequestHandler): Middleware =>
  async (ctx, next) => {
    const req = ctx.req as unknown as Express.Request & { body: unknown };
    await new Promise<void>((done, fail) => {
      const parsed = (error?: unknown) => (error === undefined ? done() : fail(error));
      parser(req as never, ctx.res as never, parsed);
    });
    Object.assign(ctx.request, { body: req.body });
    const { file, files } = req as { file?: object; files?: object };
    Object.assign(ctx, { ...(file && { file }), ...(files && { files }) });
    await next();
  };

type Multer = ReturnType<typeof multer>;

const forms = [
  { name: "single", takes: "one", of: (m: Multer) => m.single("list") },
  { name: "array", takes: "many of one field", of: (m: Multer) => m.array("list") },
  { name: "fields", takes: "any", of: (m: Multer) => m.fields(fields) },
  { name: "any", takes: "any", of: (m: Multer) => m.any() },
] as const;

const multers = (how: string, from: Multer, chosen: readonly (typeof forms)[number][]) =>
  chosen.flatMap(({ name, takes, of }): Parser[] => [
    { name: `multer, ${name}${how}`, family: "express", takes, layer: onExpress(of(from)) },
    { name: `@koa/multer, ${name}${how}`, family: "koa", takes, layer: onKoa(koaMulter(of(from))) },
  ]);

/** Those that have the bytes in memory, or a hash of them. */
const telling: readonly Parser[] = [
  ...multers("", multer(), forms),
  {
    name: "the guard's own clone",
    family: "fetch",
    takes: "any",
    comparesBytes: true,
    layer: layerThatWaits(async () => {}),
  },
];

/** Those that leave the bytes in a file, and nothing that tells one from another. */
const silent = multers(", on disk", multer({ dest: folder }), forms.slice(3));

const cases = (parsers: readonly Parser[]) =>
  newest.flatMap((framework) =>
    parsers
      .filter(({ family }) => family === framework.family)
      .map((parser) => ({ name: `${framework.name}, ${parser.name}`, framework, parser })),
  );

interface Part {
  readonly field?: string;
  readonly name?: string;
  readonly type?: string;
  readonly text?: string;
}

/** A form with files, such as a browser sends it: each time with another boundary. */
async function form(...parts: Part[]): Promise<Required<Pick<OnceSubmit, "headers" | "body">>> {
  const data = new FormData();
  data.append("cart", "7");
  for (const {
    field = "list",
    name = "a.txt",
    type = "text/plain",
    text = "100 apples",
  } of parts) {
    data.append(field, new File([text], name, { type }));
  }
  const encoded = new Response(data);
  const headers = { "content-type": encoded.headers.get("content-type") ?? "" };
  return { headers, body: await encoded.text() };
}

const send = async (once: OnceShop, ...parts: Part[]) =>
  await once.submit({ key: orderKey, ...(await form(...parts)) });

const open = (framework: Framework, { layer }: Parser, idempotency: object = {}) =>
  openOnce({
    framework,
    unparsed: true,
    outside: [layer],
    guard: { idempotency },
  });

describe.each(cases(telling))("P9: $name", ({ framework, parser }) => {
  test("the same files are the same submission, and any other file is another one", async () => {
    const once = await open(framework, parser);
    const first = await send(once, {});
    expect([first.status, once.shop.errors]).toEqual([201, []]);
    await once.whenKept(1);
    expect(unmarked(await send(once, {}))).toEqual(unmarked(first));
    const others: Part[][] = [
      [{ text: "999 pears " }],
      [{ text: "100 apples and more" }],
      [{ text: "" }],
      [{ name: "b.txt" }],
      [{ type: "text/csv" }],
      [],
    ];
    if (parser.takes !== "one") others.push([{}, {}], [{}, { text: "999 pears " }]);
    if (parser.takes === "any") others.push([{ field: "photo" }], [{}, { field: "photo" }]);
    for (const parts of others) {
      const reply = await send(once, ...parts);
      expect([parts, reply.status, codeOf(reply)]).toEqual([parts, 422, "idempotency_conflict"]);
    }
    expect(once.runs).toBe(1);
  });

  test.runIf(parser.takes !== "one")(
    "the order of one field's files counts in memory",
    async () => {
      const once = await open(framework, parser);
      const [a, b] = [{}, { name: "b.txt", text: "999 pears " }];
      const first = await send(once, a, b);
      await once.whenKept(1);
      expect(unmarked(await send(once, a, b))).toEqual(unmarked(first));
      expect((await send(once, b, a)).status).toBe(422);
    },
  );
});

describe.each(cases(silent))("P9: $name", ({ framework, parser }) => {
  test("a file that nobody has read is refused as a body is that nobody has parsed", async () => {
    const once = await open(framework, parser);
    const reply = await send(once, {});
    expect([reply.status, reply.body]).toEqual([500, '{"failed":true}']);
    expect(once.shop.errors).toEqual([
      expect.objectContaining({
        code: "SUBMIT_LOCK_NO_FINGERPRINT",
        message: expect.stringContaining("idempotency.fingerprint"),
      }),
    ]);
    expect([once.runs, await once.everything()]).toEqual([0, []]);
  });

  test("a form without a file, a fingerprint and a submissionId need no file's bytes", async () => {
    const plain = await open(framework, parser);
    expect((await send(plain)).status).toBe(201);
    for (const idempotency of [{ fingerprint: () => "mine" }, { submissionId: () => "7:3" }]) {
      const once = await open(framework, parser, idempotency);
      const first = await send(once, {});
      expect(first.status).toBe(201);
      await once.whenKept(1);
      expect(unmarked(await send(once, {}))).toEqual(unmarked(first));
    }
  });
});
