import type { Middleware } from "koa";
import { ShopError } from "./shop/errors.ts";

declare module "koa" {
  interface Request {
    body?: unknown;
  }
}

const maxBytes = 100_000;

/** What `koa-bodyparser` would do: `ctx.request.body` of a JSON or a form. */
export const parseBody: Middleware = async (ctx, next) => {
  if (ctx.is("json", "urlencoded")) {
    const chunks: Buffer[] = [];
    let bytes = 0;
    for await (const chunk of ctx.req) {
      bytes += (chunk as Buffer).length;
      if (bytes > maxBytes) throw new ShopError(413, "too_large", "That is too much.");
      chunks.push(chunk as Buffer);
    }
    const text = Buffer.concat(chunks).toString();
    ctx.request.body = ctx.is("json")
      ? parsed(text)
      : Object.fromEntries(new URLSearchParams(text));
  }
  await next();
};

function parsed(text: string): unknown {
  try {
    return JSON.parse(text);
  } catch {
    throw new ShopError(400, "no_json", "The body is no JSON.");
  }
}
