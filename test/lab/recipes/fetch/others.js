import process from "node:process";
import { gzipSync } from "node:zlib";
import { Response as LibraryResponse } from "@whatwg-node/node-fetch";

const headers = [
  ["location", "/orders/7"],
  ["content-type", "text/plain"],
  ["set-cookie", "a=1"],
  ["set-cookie", "b=2"],
];
const init = { status: 201, headers };
const placed = () => new Response("placed", init);
const kept = placed();

/** In chunks, with a pause between them; `?coding=gzip`: coded, in one. */
export function backend({ url }) {
  if (url.endsWith("=gzip")) {
    const coded = gzipSync("placed");
    const ofCoding = [
      ["content-encoding", "gzip"],
      ["content-length", coded.length],
    ];
    return new Response(coded, { status: 201, headers: [...headers, ...ofCoding] });
  }
  async function* chunks() {
    for (const text of ["pla", "ced"]) {
      yield new TextEncoder().encode(text);
      await new Promise((resolve) => setTimeout(resolve, 5));
    }
  }
  const pieces = chunks();
  const body = new ReadableStream({
    async pull(controller) {
      const { done, value } = await pieces.next();
      if (done) controller.close();
      else controller.enqueue(value);
    },
  });
  return new Response(body, init);
}

const proxied = (query = "") =>
  fetch(`http://127.0.0.1:${process.env.PORT}/backend${query}`, { method: "POST" });

/** Each makes a `Response` that the handler did not make itself. */
const others = {
  proxied,
  coded: () => proxied("?coding=gzip"),
  untyped: () => new Response("placed", { status: 201 }),
  "untyped-umlaut": () => new Response("plåced", { status: 201 }),
  "untyped-bytes": () => new Response(new TextEncoder().encode("placed"), { status: 201 }),
  library: () => new LibraryResponse("placed", init),
  cloned: () => placed().clone(),
  cached: () => kept.clone(),
  redirected: () => Response.redirect("http://shop.example/orders/7", 303),
  async "read-before"() {
    const response = placed();
    await response.clone().text();
    return response;
  },
  async streamed() {
    const { body, status, headers } = await proxied();
    return new Response(body.pipeThrough(new TransformStream()), { status, headers });
  },
};

export const other = ({ url }) => others[new URL(url).pathname.split("/").at(-1)]();
