import { expect, test } from "vitest";
import { mutations } from "../../lab/simulation/mutants/mutations.ts";
import { misfits } from "../../lab/simulation/mutants/workshop.ts";

// The hunt itself takes minutes, and would find it out too late.
test("every mutant's text stands in its file, once", async () => {
  expect(await misfits(mutations)).toEqual([]);
});
