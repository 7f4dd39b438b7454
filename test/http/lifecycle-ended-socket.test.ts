import { connect } from "node:net";
import { afterEach, describe, test } from "vitest";
import { type Framework, onHttp1 } from "./frameworks.ts";
import { submitBytes } from "./raw.ts";
import { closeShops, openShop } from "./shop.ts";

afterEach(closeShops);

describe.each(onHttp1)("$name", (framework: Framework) => {
  // As after the answer of a `clientError` listener: Node then emits nothing when the response ends.
  test("a response on a connection that has been ended, and whose client stays, frees the lock", async () => {
    const shop = await openShop({
      framework,
      handler: async (turn, work) => {
        turn.req.socket.end();
        await work.over();
        turn.answer(201, {});
      },
    });
    const client = connect({ port: shop.port, host: "127.0.0.1", allowHalfOpen: true });
    client.write(submitBytes(shop.user));
    client.resume();
    await shop.isOverAfter(1);
    client.destroy();
  });
});
