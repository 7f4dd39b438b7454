import { setTimeout as sleep } from "node:timers/promises";
import { afterEach, describe, expect, test } from "vitest";
import { type Framework, koas } from "./frameworks.ts";
import { gate } from "./gate.ts";
import { closeShops, openShop } from "./shop.ts";

afterEach(closeShops);

describe.each(koas.filter(({ major }) => major === 3))("$name", (framework: Framework) => {
  test.each([
    ["a web stream", (stream: ReadableStream) => stream],
    ["a Response", (stream: ReadableStream) => new Response(stream)],
  ])(
    "%s that is still writing the order keeps the lock when its client has left",
    async (_what, bodyOf) => {
      const [started, left, goOn] = [gate(), gate(), gate()];
      const shop = await openShop({
        framework,
        handler: (turn, work) => {
          turn.res.once("close", left.open);
          let first = true;
          const stream = new ReadableStream({
            async pull(controller) {
              if (first) {
                first = false;
                return controller.enqueue(Buffer.from("the first part"));
              }
              started.open();
              await goOn.opened;
              await work.over();
              controller.close();
            },
          });
          turn.answer(200, bodyOf(stream));
        },
      });
      const call = shop.submit();
      await call.begun;
      await started.opened;
      call.abort();
      const retry = shop.rival();
      retry.catch(() => {});
      await left.opened;
      await sleep(50);
      expect(shop.work.started).toBe(1);
      goOn.open();
      await shop.keyIsGone(1).catch(() => {});
    },
  );
});
