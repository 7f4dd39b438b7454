import { Readable } from "node:stream";
import { setTimeout as sleep } from "node:timers/promises";
import { afterEach, describe, expect, test } from "vitest";
import { type Framework, koas } from "./frameworks.ts";
import { gate } from "./gate.ts";
import { closeShops, openShop } from "./shop.ts";

afterEach(closeShops);

describe.each(koas)("$name", (framework: Framework) => {
  test("a body that is set after the client has left writes no order without the lock", async () => {
    const [started, left, goOn] = [gate(), gate(), gate()];
    const held: boolean[] = [];
    const shop = await openShop({
      framework,
      handler: async (turn, work) => {
        turn.res.once("close", left.open);
        started.open();
        await goOn.opened;
        work.overNow();
        turn.stream(
          Readable.from(
            (async function* () {
              await sleep(30);
              held.push((await shop.owner()) === turn.lease?.ownerId);
              yield "the order is written";
            })(),
          ),
        );
      },
    });
    const call = shop.submit();
    await started.opened;
    call.abort();
    await left.opened;
    goOn.open();
    await sleep(150);
    expect(held).not.toContain(false);
    await shop.isOverAfter(1);
  });
});
