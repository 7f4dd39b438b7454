import { createRequire } from "node:module";
import { bodyParser } from "@koa/bodyparser";
import express5 from "express";
import express4 from "express4";
import type { Middleware } from "koa";
import { describe, expect, test } from "vitest";
import { type Framework, mainFrameworks } from "./frameworks.ts";
import { onExpress, onKoa } from "./layers.ts";
import { openOnce, orderKey } from "./once-shop.ts";
import type { Layer } from "./turn.ts";

const require = createRequire(import.meta.url);
const { koaBody }: { koaBody(): Middleware } = require("koa-body");

/** The parsers that people mount, by the framework that they run on. */
const parsers: readonly [name: string, runsOn: (framework: Framework) => boolean, layer: Layer][] =
  [
    ["express.json of 4", ({ name }) => name.startsWith("Express 4"), onExpress(express4.json())],
    ["express.json of 5", ({ name }) => name.startsWith("Express 5"), onExpress(express5.json())],
    [
      "@koa/bodyparser",
      ({ family }) => family === "koa",
      onKoa(bodyParser({ enableTypes: ["json"] })),
    ],
    ["koa-body", ({ family }) => family === "koa", onKoa(koaBody())],
  ];

const mounted = mainFrameworks.flatMap((framework) =>
  parsers
    .filter(([, runsOn]) => runsOn(framework))
    .map(([parser, , layer]) => ({ name: `${framework.name}, ${parser}`, framework, layer })),
);

const untaken = [
  "image/png",
  "application/xml",
  "application/octet-stream",
  "multipart/form-data; boundary=x",
  "; and nothing readable",
  undefined,
];

describe.each(mounted)("$name", ({ name, framework, layer }) => {
  test("a type that it does not take is a 415, and nothing runs", async () => {
    const once = await openOnce({ framework, unparsed: true, outside: [layer] });
    for (const type of untaken) {
      for (const framing of [{}, { "transfer-encoding": "chunked" }]) {
        const headers = { ...(type && { "content-type": type }), ...framing };
        const reply = await once.submit({ key: orderKey, headers, body: "--x--\r\n" });
        expect([headers, reply.status, reply.body]).toEqual([headers, 415, '{"failed":true}']);
        const code = "SUBMIT_LOCK_NO_FINGERPRINT";
        expect(once.shop.errors.at(-1)).toMatchObject({ code, status: 415, statusCode: 415 });
      }
    }
    expect([once.runs, await once.everything()]).toEqual([0, []]);
  });

  // Koa-body takes forms, and leaves no trace where it does not.
  test.skipIf(name.endsWith("koa-body"))("a form is a 415 where JSON alone is taken", async () => {
    const once = await openOnce({ framework, unparsed: true, outside: [layer] });
    const headers = { "content-type": "application/x-www-form-urlencoded" };
    expect((await once.submit({ key: orderKey, headers, body: "cart=7" })).status).toBe(415);
    expect([once.runs, await once.everything()]).toEqual([0, []]);
  });

  test("JSON is taken, and so is a request without a body", async () => {
    const once = await openOnce({ framework, unparsed: true, outside: [layer] });
    expect((await once.submit({ key: orderKey, body: { cart: 7 } })).status).toBe(201);
    expect((await once.submit({ key: "another" })).status).toBe(201);
    expect(
      (await once.submit({ body: "7", headers: { "content-type": "image/png" } })).status,
    ).toBe(201);
  });
});

describe.each(mainFrameworks)("$name, no parser", (framework) => {
  test.each(["application/json", "application/x-www-form-urlencoded"])(
    "%s is a 500: the application has forgotten its parser",
    async (type) => {
      const once = await openOnce({ framework, unparsed: true });
      const headers = { "content-type": type };
      expect((await once.submit({ key: orderKey, headers, body: "7" })).status).toBe(500);
      expect(String(once.shop.errors[0])).toContain("Mount the body parser before the guard");
    },
  );
});
