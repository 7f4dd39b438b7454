// The shop without its guard, to see that the play notices.
import { createServer } from "node:http";
import { serve } from "../../../examples/serve.ts";
import { answerTo, Shop, signedIn } from "../../../examples/shop.ts";

await serve("nothing", () => {
  const shop = new Shop();
  return createServer(async (req, res) => {
    const send = (status: number, body: object) => {
      res.writeHead(status, { "Content-Type": "application/json" }).end(JSON.stringify(body));
    };
    try {
      const user = signedIn(req.headers.authorization);
      if (req.method === "PUT") shop.refill(user);
      if (req.method === "POST") send(201, await shop.placeOrder(user, undefined));
      else send(200, shop.view(user));
    } catch (error) {
      const { status, body } = answerTo(error);
      send(status, body);
    }
  });
});
