import { expect, test } from "vitest";
import { type Holding, Ledger } from "../../lab/ledger.ts";
import { historyOf } from "../../lab/service/laboratory.ts";

const begin = (ledger: Ledger, ownerId: string, askedAt: number, from: number): Holding =>
  ledger.begin({
    holder: "a service",
    user: 'the "first"',
    ownerId,
    fencingToken: from,
    askedAt,
    from,
  });

test("a history has an invocation and a completion for each operation, in the order of time", () => {
  const ledger = new Ledger();
  ledger.end(begin(ledger, "is done", 1, 2), 5);
  const believed = begin(ledger, "has run out", 3, 6);
  believed.believedUntil = 8;
  ledger.end(believed, 11, true);
  begin(ledger, "goes on", 4, 9);
  expect(historyOf(ledger.holdings).split("\n")).toEqual([
    '{:index 0, :time 1000000, :process 0, :type :invoke, :f :acquire, :value ["the \\"first\\"" nil]}',
    '{:index 1, :time 2000000, :process 0, :type :ok, :f :acquire, :value ["the \\"first\\"" 2]}',
    '{:index 2, :time 3000000, :process 1, :type :invoke, :f :acquire, :value ["the \\"first\\"" nil]}',
    '{:index 3, :time 4000000, :process 2, :type :invoke, :f :acquire, :value ["the \\"first\\"" nil]}',
    '{:index 4, :time 5000000, :process 0, :type :invoke, :f :release, :value ["the \\"first\\"" 2]}',
    '{:index 5, :time 5000000, :process 0, :type :info, :f :release, :value ["the \\"first\\"" 2]}',
    '{:index 6, :time 6000000, :process 1, :type :ok, :f :acquire, :value ["the \\"first\\"" 6]}',
    '{:index 7, :time 8000000, :process 1, :type :invoke, :f :release, :value ["the \\"first\\"" 6]}',
    '{:index 8, :time 8000000, :process 1, :type :info, :f :release, :value ["the \\"first\\"" 6]}',
    '{:index 9, :time 9000000, :process 2, :type :ok, :f :acquire, :value ["the \\"first\\"" 9]}',
    "",
  ]);
});
