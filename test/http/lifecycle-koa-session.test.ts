import { afterEach, describe, expect, test } from "vitest";
import { until } from "../support/until.ts";
import { type Framework, koas } from "./frameworks.ts";
import { gate } from "./gate.ts";
import { sessionLayer } from "./layers.ts";
import { closeShops, openShop } from "./shop.ts";

afterEach(closeShops);

describe.each(koas)("$name", (framework: Framework) => {
  test("a session outside the lock is saved first when the client has left, too", async () => {
    const session = sessionLayer(60);
    const [started, left, goOn] = [gate(), gate(), gate()];
    const shop = await openShop({
      framework,
      outside: [session],
      handler: async (turn, work) => {
        turn.res.once("close", left.open);
        started.open();
        await goOn.opened;
        await work.over();
        turn.answer(201, { order: "placed" });
      },
    });
    const call = shop.submit();
    await started.opened;
    call.abort();
    await left.opened;
    goOn.open();
    await until(() => shop.published.releases.length === 1, { what: "the release", everyMs: 1 });
    expect(session.saved).toEqual(["the-session"]);
    await shop.isOverAfter(1);
  });
});
