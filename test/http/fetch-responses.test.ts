import { createServer } from "node:http";
import { expect, onTestFinished, test } from "vitest";
import { ask } from "../lab/nets/answers/wire.ts";
import { ForeignResponse } from "./foreign-response.ts";
import { type Framework, newer } from "./frameworks.ts";
import { listen } from "./http-client.ts";
import { type OnceShop, openOnce, orderKey } from "./once-shop.ts";

const framework = newer.find(({ family }) => family === "fetch") as Framework;

const foreign = (text: string | null) =>
  new ForeignResponse(201, text, [
    ["Location", "/orders/7"],
    ["Content-Type", "application/graphql-response+json"],
    ["Set-Cookie", "a=1"],
    ["Set-Cookie", "b=2"],
  ]) as unknown as Response;

/** A server that answers in chunks, behind the shop. */
async function backend(): Promise<string> {
  const server = createServer((_req, res) => {
    res.writeHead(201, { location: "/orders/7", trailer: "x-sum", "set-cookie": ["a=1", "b=2"] });
    res.write("pla");
    res.write("ced");
    res.addTrailers({ "x-sum": "7" });
    res.end();
  });
  onTestFinished(() => void server.close());
  return `http://127.0.0.1:${await listen(server)}`;
}

const responses: Record<string, (url: string) => Response | Promise<Response>> = {
  "that is proxied": (url) => fetch(url),
  "of a library": () => foreign("placed"),
  "of a library, without a body": () => foreign(null),
  "that is cloned": () => new Response("placed", { status: 201 }).clone(),
  "whose clone was read": async () => {
    const response = new Response("placed", { status: 201 });
    await response.clone().text();
    return response;
  },
  "whose clone nobody reads": () => {
    const response = new Response("placed", { status: 201 });
    response.clone();
    return response;
  },
  "that is a redirect": () => Response.redirect("http://shop.example/orders/7", 303),
  "of a cache, with an age": () =>
    new Response("placed", { status: 201, headers: { age: "7", "content-type": "text/plain" } }),
};

const wire = async (once: OnceShop) => {
  const headers = { "x-user": once.shop.user, "idempotency-key": orderKey };
  const answer = await ask(once.shop.port, { method: "POST", headers, patienceMs: 5_000 });
  const { status, body, ending } = answer;
  const names = ["location", "content-type", "set-cookie", "age"];
  const kept = names.map((name) => [name, answer.headers.get(name)?.join()]);
  const framings = ["content-length", "transfer-encoding"].filter((name) =>
    answer.headers.has(name),
  );
  return { answer: { status, ending, body: body.toString(), kept }, framings };
};

test.each(Object.keys(responses))(
  "P8: a Response %s is what it is without a guard, framed once",
  async (what) => {
    const url = await backend();
    const seen = [];
    for (const bare of [true, false]) {
      const once = await openOnce({
        framework,
        bare,
        handler: async (turn) => turn.hono?.respond((await responses[what]?.(url)) as Response),
      });
      const first = await wire(once);
      expect(first.framings).toHaveLength(1);
      seen.push(first.answer);
      if (bare) continue;
      await once.whenKept(1);
      const { answer: repeat } = await wire(once);
      expect(repeat).toMatchObject({ status: first.answer.status, body: first.answer.body });
      expect(once.runs).toBe(1);
    }
    expect(seen[1]).toEqual(seen[0]);
  },
);

test("a refusal of the application's own has its code also where its headers cannot be set", async () => {
  const once = await openOnce({
    framework,
    guard: { idempotency: { key: "required" } },
    recipe: {
      express: {},
      koa: {},
      fastify: {},
      fetch: { onKeyMissing: () => Response.redirect("http://shop.example/cart", 303) },
    },
  });
  const { headers, status } = await once.submit();
  expect([status, headers["submit-lock-code"]]).toEqual([303, "idempotency_key_required"]);
  expect(headers["location"]).toBe("http://shop.example/cart");
});
