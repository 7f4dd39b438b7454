import { type Cell, type CellResult, runCell, type Servers } from "./cell.ts";

/** A cell that could not be run is a fault of the lab, and no result. */
interface CellFailure {
  readonly cell: Cell;
  readonly error: unknown;
}

interface Run {
  readonly results: CellResult[];
  readonly failures: CellFailure[];
  /** How many cells were measured again because of what `isSound` said. */
  readonly again: number;
}

interface RunOptions {
  readonly atOnce: number;
  readonly done?: (result: CellResult) => void;
  /** Whether a measurement can be believed; one that cannot is made again, twice at most. */
  readonly isSound?: (result: CellResult) => boolean;
}

/** Runs all the cells, so many at a time, in their order. */
export async function runCells(
  servers: Servers,
  cells: readonly Cell[],
  { atOnce, done = () => {}, isSound = () => true }: RunOptions,
): Promise<Run> {
  const results = new Map<Cell, CellResult>();
  const failures: CellFailure[] = [];
  const queue = [...cells];
  let again = 0;
  const measure = async (cell: Cell): Promise<void> => {
    for (let left = 2; ; left--) {
      const result = await runCell(servers, cell);
      results.set(cell, result);
      done(result);
      if (left === 0 || isSound(result)) return;
      again++;
    }
  };
  const lane = async (): Promise<void> => {
    for (let cell = queue.shift(); cell !== undefined; cell = queue.shift()) {
      const failed = cell;
      await measure(cell).catch((error) => failures.push({ cell: failed, error }));
    }
  };
  await Promise.all(Array.from({ length: atOnce }, lane));
  return { results: cells.flatMap((cell) => results.get(cell) ?? []), failures, again };
}
