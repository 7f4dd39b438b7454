import { expect, test } from "vitest";
import { huntElsewhere } from "../hunters.ts";
import { huntMutants } from "./hunt-mutants.ts";
import { openWorkshop } from "./workshop.ts";

const runs = 20_000;

test("every mutant is caught", { timeout: 600_000 }, async () => {
  const catches = await huntMutants(runs, 1, 2);
  const survivors = catches.filter(({ after }) => after === undefined);
  expect(survivors.map(({ mutant }) => mutant)).toEqual([]);
});

test("the sources themselves pass in the same place", { timeout: 120_000 }, async () => {
  const workshop = await openWorkshop(undefined);
  try {
    const { failure } = await huntElsewhere(
      { runs: 2_000, seed: 1, shrinks: false },
      workshop.program,
    );
    expect(failure?.violation).toBeUndefined();
  } finally {
    await workshop.remove();
  }
});
