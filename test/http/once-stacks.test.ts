import { brotliCompressSync, deflateSync, gunzipSync, gzipSync } from "node:zlib";
import { describe, expect, test } from "vitest";
import { expresses, type Framework, hasLayers, koas, newest } from "./frameworks.ts";
import type { Reply } from "./http-client.ts";
import { compressionLayer, layerThatWaits, sessionLayer } from "./layers.ts";
import { codeOf, onAll, openOnce, orderKey, unmarked } from "./once-shop.ts";
import type { Layer, Turn } from "./turn.ts";

const order = { order: 7, note: "x".repeat(2_000) };
const place = (turn: Turn) => turn.answer(201, order);

const gzip = { "accept-encoding": "gzip" };
const plain = { "accept-encoding": "identity" };

/** What a client shows of a reply. */
function shown({ body, headers }: Reply): unknown {
  const bytes = Buffer.from(body, "latin1");
  return JSON.parse(
    (headers["content-encoding"] === "gzip" ? gunzipSync(bytes) : bytes).toString(),
  );
}

/** CORS, as middleware sets it for each request. */
const cors = layerThatWaits(async (req, res) => {
  res.setHeader("access-control-allow-origin", String(req.headers.origin));
  res.setHeader("vary", "Origin");
});

/** The two places of a layer. */
const places: [string, (layer: Layer) => { outside?: Layer[]; inside?: Layer[] }][] = [
  ["outside", (layer) => ({ outside: [layer] })],
  ["inside", (layer) => ({ inside: [layer] })],
];

describe.each(onAll)("$name", (framework: Framework) => {
  // Hooks of Fastify and middleware of Hono are around a guard, and never inside.
  const placesHere = hasLayers(framework) ? places : places.slice(0, 1);

  test.each(placesHere)(
    "with a session %s a replay has no cookie of the first answer",
    async (_where, at) => {
      const session = sessionLayer(10);
      const once = await openOnce({ framework, handler: place, ...at(session) });
      const [first, second] = await once.twice();
      expect(String(first.headers["set-cookie"])).toContain("the-session");
      expect(shown(second)).toEqual(order);
      expect((await once.records()).join()).not.toMatch(/cookie|the-session/i);
      // Inside, nothing that a session does is run again; outside, it is the retry's own session.
      const isOutside = _where === "outside";
      expect(second.headers["set-cookie"] !== undefined).toBe(isOutside);
      expect(session.saved).toHaveLength(isOutside ? 2 : 1);
      expect(once.runs).toBe(1);
    },
  );

  test("with CORS outside a replay has the headers of its own origin", async () => {
    const once = await openOnce({ framework, handler: place, outside: [cors] });
    const first = await once.submit({ key: orderKey, headers: { origin: "https://one.example" } });
    await once.whenKept(1);
    const second = await once.submit({ key: orderKey, headers: { origin: "https://two.example" } });
    expect(first.headers["access-control-allow-origin"]).toBe("https://one.example");
    expect(second.headers["access-control-allow-origin"]).toBe("https://two.example");
    expect(shown(second)).toEqual(order);
  });

  test("compression outside sends each what it accepts", async () => {
    const once = await openOnce({ framework, handler: place, outside: [compressionLayer()] });
    for (const headers of [gzip, plain, gzip]) {
      const reply = await once.submit({ key: orderKey, headers });
      await once.whenKept(1);
      expect(reply.headers["content-encoding"]).toBe(headers === gzip ? "gzip" : undefined);
      expect(shown(reply)).toEqual(order);
    }
    expect((await once.records()).join()).not.toContain("content-encoding");
    expect((await once.records()).join()).toContain('\\"order\\":7');
    expect(once.runs).toBe(1);
  });
});

describe.each(expresses)("$name", (framework: Framework) => {
  test.each([
    [gzip, gzip, 201],
    [gzip, plain, 409],
    [gzip, {}, 409],
    [plain, gzip, 201],
  ])("compression inside is kept as it is: %o, then %o is %i", async (one, other, status) => {
    const once = await openOnce({ framework, handler: place, inside: [compressionLayer()] });
    const first = await once.submit({ key: orderKey, headers: one });
    await once.whenKept(1);
    const second = await once.submit({ key: orderKey, headers: other });
    expect(second.status).toBe(status);
    expect(shown(first)).toEqual(order);
    if (status === 201) expect(unmarked(second)).toEqual(unmarked(first));
    else expect(codeOf(second)).toBe("idempotency_answer_unavailable");
    expect(once.runs).toBe(1);
  });
});

describe.each(koas)("$name", (framework: Framework) => {
  test("what compression inside makes a stream of is not run again", async () => {
    const once = await openOnce({ framework, handler: place, inside: [compressionLayer()] });
    const first = await once.submit({ key: orderKey, headers: gzip });
    expect(shown(first)).toEqual(order);
    await once.whenKept(1);
    const second = await once.submit({ key: orderKey, headers: gzip });
    expect([second.status, codeOf(second)]).toEqual([409, "idempotency_answer_unavailable"]);
    expect(once.runs).toBe(1);
  });
});

const text = "placed ".repeat(100);
const accepted = ["gzip, deflate, br, zstd", "*", "GZIP;q=0.5, br;q=0.1, deflate, zstd"];
const refused = ["identity", "snappy", "gzip;q=0, br;q=0.000, deflate;q=0, zstd;q=0", "*;q=0"];

/** A body that the handler itself has encoded, and the codings of clients that cannot read it. */
const encoded: [coding: string, body: Buffer, refused: string[]][] = [
  ["gzip", gzipSync(text), refused],
  ["x-gzip", gzipSync(text), refused],
  ["deflate", deflateSync(text), refused],
  ["br", brotliCompressSync(text), refused],
  ["gzip, br", brotliCompressSync(gzipSync(text)), [...refused, "gzip", "br"]],
  ["zstd", Buffer.from(text), refused],
  ["identity", Buffer.from(text), []],
];

describe.each(newest.filter(hasLayers))("$name", (framework: Framework) => {
  test.each(encoded)(
    "a body in the coding %s is repeated to a client that accepts it, and to no other",
    async (coding, body, unreadable) => {
      const once = await openOnce({
        framework,
        handler: (turn) => {
          turn.res.setHeader("content-encoding", coding);
          turn.res.setHeader("etag", '"7"');
          if (turn.ctx) Object.assign(turn.ctx, { status: 201, type: "text", body });
          else turn.express?.res.status(201).type("text").send(body);
        },
      });
      const first = await once.submit({ key: orderKey });
      await once.whenKept(1);
      const accepts = (value: string) =>
        once.submit({ key: orderKey, headers: { "accept-encoding": value } });
      for (const value of [...accepted, ...(unreadable.length > 0 ? [] : refused)]) {
        expect(unmarked(await accepts(value))).toEqual(unmarked(first));
      }
      for (const value of unreadable) {
        const reply = await accepts(value);
        expect([reply.status, codeOf(reply)]).toEqual([409, "idempotency_answer_unavailable"]);
      }
      expect(once.runs).toBe(1);
    },
  );
});
