import { expect, test } from "vitest";
import { blockedOverTime, figuresOf, reasonOf } from "../../lab/incident/page.ts";
import { blockedPicture, surplusPicture } from "../../lab/incident/pictures.ts";
import type { Replay } from "../../lab/shop/incident.ts";

const run: Replay = {
  wishes: 5,
  orders: 8,
  ordersLost: 1,
  faults: { "lost reply": 1, "killed process": 1, "slow holder": 1 },
  blocks: [
    { user: "1", fault: "lost reply", fromMs: 500, untilMs: 3_000 },
    { user: "1", fault: "lost reply", fromMs: 4_000, untilMs: 7_000 },
    { user: "2", fault: undefined, fromMs: 2_000, untilMs: 2_100 },
  ],
  surplus: [
    { fault: "slow holder", isAtOnce: true, isByClock: true },
    { fault: undefined, isAtOnce: true, isByClock: true },
    { fault: undefined, isAtOnce: false, isByClock: false },
  ],
  lengthMs: 8_000,
};

test("what failed is counted, and told by what it followed from", () => {
  expect(figuresOf(run)).toEqual({
    "orders placed": 8,
    "users blocked": 1,
    "blocked time (s)": 5.5,
    "longest block (s)": 3,
    "double orders at the same time": 2,
    "second orders later": 1,
    "orders lost": 1,
  });
  expect(reasonOf(run)).toBe(
    "1 user locked out by an own lock whose reply was lost; 1 order placed beside a holder slower than its lease; 1 order placed at once by a server whose clock is ahead; 1 click of an order that was finished, taken for a new one",
  );
  expect(reasonOf({ ...run, blocks: [], surplus: [] })).toBe("nothing failed");
});

test("blocks and surplus orders are drawn", () => {
  const blocked = blockedOverTime(run.blocks, 8_000);
  expect([blocked[4], blocked[5], blocked[20], blocked[21], blocked[79]]).toEqual([0, 1, 2, 1, 0]);
  const drawn = blockedPicture([{ name: "a < b", blocked }], "Blocked & waiting", 5);
  expect(drawn).toContain("a &lt; b");
  expect(drawn).toContain("Blocked &amp; waiting");
  expect(drawn.match(/<polyline/g)).toHaveLength(1);
  const bars = surplusPicture([{ name: "old", atOnce: 2, later: 1 }], "Too many");
  expect(bars.match(/<rect/g)).toHaveLength(4);
  expect(bars).toContain(">3</text>");
});
