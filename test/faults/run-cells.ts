import { type Cell, type CellResult, type Lab, runCell } from "./cell.ts";

/** A cell that could not be run is a fault of the lab, and no result. */
export interface CellFailure {
  readonly cell: Cell;
  readonly error: unknown;
}

/** Runs all the cells, so many at a time, in their order. */
export async function runCells(
  lab: Lab,
  cells: readonly Cell[],
  atOnce: number,
  done: (result: CellResult) => void = () => {},
): Promise<{ results: CellResult[]; failures: CellFailure[] }> {
  const results = new Map<Cell, CellResult>();
  const failures: CellFailure[] = [];
  const queue = [...cells];
  const lane = async (): Promise<void> => {
    for (let cell = queue.shift(); cell !== undefined; cell = queue.shift()) {
      try {
        const result = await runCell(lab, cell);
        results.set(cell, result);
        done(result);
      } catch (error) {
        failures.push({ cell, error });
      }
    }
  };
  await Promise.all(Array.from({ length: atOnce }, lane));
  return { results: cells.flatMap((cell) => results.get(cell) ?? []), failures };
}
