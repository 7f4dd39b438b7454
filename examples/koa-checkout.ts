// The same checkout on Koa: `npm run build`, then `npx tsx examples/koa-checkout.ts`.
import { readFileSync } from "node:fs";
import { createServer } from "node:http";
import Koa from "koa";
import { submitGuard } from "submit-lock/koa";
import { serve } from "./serve.ts";
import { answerTo, Shop, signedIn, userOf } from "./shop.ts";

const page = readFileSync(new URL("./checkout.html", import.meta.url), "utf8");

await serve("Koa", (lock) => {
  const shop = new Shop();
  const app = new Koa();

  app.use(async (ctx, next) => {
    try {
      await next();
    } catch (error) {
      const { status, body } = answerTo(error);
      ctx.status = status;
      ctx.body = body;
    }
  });

  // A router would do this. What it does not answer goes on to the guard.
  app.use(async (ctx, next) => {
    switch (`${ctx.method} ${ctx.path}`) {
      case "POST /orders":
        await next();
        break;
      case "GET /":
        ctx.type = "html";
        ctx.body = page;
        break;
      case "GET /cart":
        ctx.body = shop.view(signedIn(ctx.get("authorization")));
        break;
      case "PUT /cart":
        shop.refill(signedIn(ctx.get("authorization")));
        ctx.body = shop.view(signedIn(ctx.get("authorization")));
        break;
    }
  });

  const guard = submitGuard({ lock, userId: (ctx) => userOf(ctx.get("authorization")) });

  app.use(guard).use(async (ctx) => {
    ctx.body = await shop.placeOrder(
      signedIn(ctx.get("authorization")),
      ctx.state.submitLease.signal,
    );
    ctx.status = 201;
  });

  return createServer(app.callback());
});
