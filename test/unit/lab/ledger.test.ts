import { expect, test } from "vitest";
import { Ledger, overlapping } from "../../lab/ledger.ts";

/** Holdings of one user, by their ends. */
function ledgerOf(...spans: [from: number, until: number][]): Ledger {
  const ledger = new Ledger();
  for (const [i, [from, until]] of spans.entries()) {
    const holding = ledger.begin({ holder: "somebody", user: "42", ownerId: `owner ${i}`, from });
    ledger.end(holding, until);
  }
  return ledger;
}

test.each<[what: string, spans: [number, number][], pairs: string[]]>([
  [
    "one after the other",
    [
      [0, 5],
      [5, 9],
    ],
    [],
  ],
  [
    "one inside another",
    [
      [0, 9],
      [3, 4],
    ],
    ["owner 0, owner 1"],
  ],
  [
    "a moment inside another",
    [
      [0, 9],
      [3, 3],
    ],
    ["owner 0, owner 1"],
  ],
  [
    "three at once",
    [
      [0, 9],
      [1, 9],
      [2, 9],
    ],
    ["owner 0, owner 1", "owner 0, owner 2", "owner 1, owner 2"],
  ],
  [
    "told later than begun",
    [
      [4, 9],
      [0, 5],
    ],
    ["owner 1, owner 0"],
  ],
])("overlaps are found: %s", (_what, spans, pairs) => {
  const found = overlapping(ledgerOf(...spans).holdings);
  expect(found.map((pair) => pair.map(({ ownerId }) => ownerId).join(", "))).toEqual(pairs);
});

test("other users do not overlap, and only the first end of a holding counts", () => {
  const ledger = ledgerOf([0, 5]);
  const other = ledger.begin({ holder: "somebody", user: "43", ownerId: "other", from: 1 });
  ledger.end(other, 4, true);
  ledger.end(other, 6);
  expect(overlapping(ledger.holdings)).toEqual([]);
  expect(ledger.of("other")).toMatchObject({ until: 4, lost: true });
});

test("what goes on is not forgotten", () => {
  const ledger = ledgerOf([0, 5]);
  ledger.begin({ holder: "somebody", user: "42", ownerId: "at work", from: 1 });
  ledger.forget();
  expect(ledger.holdings.map(({ ownerId }) => ownerId)).toEqual(["at work"]);
});
