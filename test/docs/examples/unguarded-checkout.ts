// The shop without its guard, to see that the play notices.
import { createServer } from "node:http";
import { serve } from "../../../examples/demo/serve.ts";
import { refillCart, viewOf } from "../../../examples/demo/shop/carts.ts";
import { signedIn } from "../../../examples/demo/shop/customers.ts";
import { answerTo } from "../../../examples/demo/shop/errors.ts";
import { placeOrder } from "../../../examples/demo/shop/place-order.ts";

await serve("nothing", (shop) =>
  createServer(async (req, res) => {
    const send = (status: number, body: object) => {
      res.writeHead(status, { "Content-Type": "application/json" }).end(JSON.stringify(body));
    };
    try {
      const userId = signedIn(req.headers);
      if (req.method === "PUT") await refillCart(shop.db, userId);
      if (req.method === "POST") send(201, await placeOrder(shop, { userId }));
      else send(200, await viewOf(shop.db, userId));
    } catch (error) {
      const { status, body } = answerTo(error);
      send(status, body);
    }
  }),
);
