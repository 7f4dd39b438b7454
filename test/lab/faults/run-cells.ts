import { type Cell, type CellResult, runCell, type Servers } from "./cell.ts";

interface RunOptions {
  readonly atOnce: number;
  readonly done?: (result: CellResult) => void;
  /** Whether a measurement can be believed; one that cannot is made again, twice at most. */
  readonly isSound?: (result: CellResult) => boolean;
}

/**
 * Runs all the cells, so many at a time; those that are made again, fewer. To start a server makes
 * this process late, so cells with a server of their own begin together, and after all others.
 */
export async function runCells(
  servers: Servers,
  cells: readonly Cell[],
  { atOnce, done = () => {}, isSound = () => true }: RunOptions,
) {
  const results = new Map<Cell, CellResult>();
  /** A cell that could not be run is a fault of the lab, and no result. */
  const failures: { cell: Cell; error: unknown }[] = [];
  const measure = async (cell: Cell): Promise<void> => {
    await runCell(servers, cell).then(
      (result) => {
        results.set(cell, result);
        done(result);
      },
      (error: unknown) => failures.push({ cell, error }),
    );
  };
  const measureAll = async (queue: Cell[]): Promise<void> => {
    for (let cell = queue.shift(); cell !== undefined; cell = queue.shift()) await measure(cell);
  };
  /** How many cells were measured again because of what `isSound` said. */
  let again = 0;
  let todo = [...cells];
  for (let round = 0; todo.length > 0; round++) {
    if (round > 0) again += todo.length;
    const lanes = Math.ceil(atOnce / 3 ** round);
    const shared = todo.filter(({ fault }) => !fault.ownServer);
    await Promise.all(Array.from({ length: lanes }, () => measureAll(shared)));
    const own = todo.filter(({ fault }) => fault.ownServer);
    while (own.length > 0) await Promise.all(own.splice(0, lanes).map(measure));
    const unsound = (cell: Cell): boolean => {
      const result = results.get(cell);
      return result !== undefined && !isSound(result);
    };
    todo = round < 2 ? todo.filter(unsound) : [];
  }
  return { results: cells.flatMap((cell) => results.get(cell) ?? []), failures, again };
}

/** Records what nobody catches, until `stop`; `take` is what came since it was last called. */
export function recordUncaught(): { take(): string[]; stop(): void } {
  const seen: string[] = [];
  const note = (error: unknown): void => {
    seen.push(error instanceof Error ? `${error.name}: ${error.message}` : String(error));
  };
  process.on("unhandledRejection", note).on("uncaughtException", note);
  return {
    take: () => seen.splice(0),
    stop: () => process.off("unhandledRejection", note).off("uncaughtException", note),
  };
}
