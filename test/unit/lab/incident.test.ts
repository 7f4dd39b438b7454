import { expect, test } from "vitest";
import { blockedOverTime, figuresOf } from "../../lab/incident/figures.ts";
import { picture } from "../../lab/incident/picture.ts";

test("a block is counted, measured and drawn", () => {
  const blocks = [
    { user: "1", fromMs: 500, untilMs: 3_000 },
    { user: "1", fromMs: 4_000, untilMs: 7_000 },
    { user: "2", fromMs: 2_000, untilMs: 2_100 },
  ];
  const counts = { clicks: 9, wishes: 5, orders: 5, doubleOrders: 0, laterOrders: 0 };
  const run = { ...counts, unfulfilled: 0, repliesLost: 3, blocks, lengthMs: 8_000 };
  expect(figuresOf(run)).toMatchObject({
    "users blocked": 1,
    "total blocked time (s)": 5.5,
    "longest block (s)": 3,
    "refused once, then served": 1,
  });
  const blocked = blockedOverTime(blocks, 8_000);
  expect([blocked[4], blocked[5], blocked[20], blocked[21], blocked[79]]).toEqual([0, 1, 2, 1, 0]);
  const drawn = picture([{ name: "a < b", blocked }], "Blocked & waiting", 5);
  expect(drawn).toContain("a &lt; b");
  expect(drawn).toContain("Blocked &amp; waiting");
  expect(drawn.match(/<polyline/g)).toHaveLength(1);
});
