import { lateSteps } from "../../support/pulse.ts";
import { Misses } from "../laboratory.ts";
import type { CellResult } from "./cell.ts";
import type { Fault } from "./fault.ts";

/** The package's default time bounds, and what is added for the way to and fro. */
const acquireTimeoutMs = 1_000;
const onTopMs = 50;
/** With a second connection that can reach Redis. */
const acquiredWithinMs = 300;
/** A refusal by Redis itself is an answer, so nothing is waited for. */
const refusedWithinMs = 100;
const orphanMs = 100;
/** After the release was called; Redis can be reached then. */
const freedWithinMs = 500;

/**
 * A machine that stood still for so long has measured itself: an answer of 300 ms takes several round
 * trips, and one client of the lab has a `commandTimeout` of 200 ms.
 */
const mostLateMs = 50;

export function isSound({ labLateMs }: CellResult): boolean {
  return labLateMs <= mostLateMs;
}

/**
 * What this cell of the package should have shown and did not. Empty when all is well. A cell that
 * is not sound still has to show what is true on every machine.
 */
export function misses(fault: Fault, cell: CellResult): string[] {
  const late = lateSteps * cell.labLateMs;
  const misses = new Misses();
  const expect = misses.expect.bind(misses);
  expect(cell.struck, "the fault never struck");
  expect(cell.overlaps === 0, `two callers held at once, ${cell.overlaps} times`);
  expect(cell.unsettled.length === 0, `never settled: ${cell.unsettled.join(", ")}`);
  if (cell.once !== undefined) expectOnce(fault, cell.once, expect);
  if (!isSound(cell)) return misses.found;
  const answered = (outcome: CellResult["outcome"], withinMs: number): void => {
    expect(cell.outcome === outcome, `the caller is to be "${outcome}", not "${cell.outcome}"`);
    expect(
      cell.answeredMs <= withinMs + late,
      `the caller is to know within ${withinMs} ms, not ${Math.round(cell.answeredMs)} ms`,
    );
  };
  switch (fault.expect) {
    case "acquired":
    case "released":
    case "recorded":
      answered("acquired", acquiredWithinMs);
      break;
    case "back in time":
      answered("acquired", acquireTimeoutMs + onTopMs);
      break;
    case "unavailable":
      answered("unavailable", acquireTimeoutMs + onTopMs);
      break;
    case "refused":
      answered("unavailable", refusedWithinMs);
      expect(
        cell.cause?.includes(fault.says ?? "") === true,
        `the cause is to be ${fault.says}, not "${cell.cause}"`,
      );
      break;
  }
  const isOnAcquire = fault.on === "acquire";
  // A caller is free so soon after Redis can be reached.
  const freeMs = (fault.awayMs ?? 0) + freedWithinMs;
  const mostOrphanMs = isOnAcquire ? orphanMs : freeMs;
  expect(
    cell.orphanMs <= mostOrphanMs + late,
    `no orphan for more than ${mostOrphanMs} ms in sum, not ${Math.round(cell.orphanMs)} ms`,
  );
  expect(
    cell.rivalOrphanMs <= orphanMs + late,
    `no orphan of a rival for more than ${orphanMs} ms, not ${Math.round(cell.rivalOrphanMs)} ms`,
  );
  if (!isOnAcquire) {
    expect(
      cell.freedAfterMs <= freeMs + late,
      `the key is to be free within ${freeMs} ms, not ${Math.round(cell.freedAfterMs)} ms`,
    );
  }
  if (cell.outcome === "acquired") {
    // A lease that was reported lost has nothing left to release.
    const word = cell.once === undefined ? "released" : "recorded";
    const rightly = cell.toldLost ? [word, "gone", "foreign", "late"] : [word];
    expect(rightly.includes(cell.release ?? ""), `the release is not to be "${cell.release}"`);
    // Redis could be reached all the time, so no lease needs to be lost.
    expect(!cell.toldLost, "the lease is not to be lost");
  }
  if (cell.once !== undefined) {
    const after = cell.once.replayedAfterMs;
    expect(
      after <= freeMs + late,
      `a retry is to be given the answer within ${freeMs} ms, not ${Math.round(after)} ms`,
    );
  }
  expect(cell.rivalHolds > 0, "nobody else got the lock afterwards");
  return misses.found;
}

/** What is true on every machine. */
function expectOnce(
  fault: Fault,
  { secondRuns, wrongAnswers, gaps, isRecordedAtEnd }: NonNullable<CellResult["once"]>,
  expect: (met: boolean, what: string) => void,
): void {
  expect(secondRuns === 0, `a retry ran, ${secondRuns} times`);
  expect(wrongAnswers === 0, `a retry was given another answer, ${wrongAnswers} times`);
  expect(gaps === 0, `neither lock nor record was there, ${gaps} times`);
  const isKept = fault.retainMs === undefined;
  expect(
    isRecordedAtEnd === isKept,
    isKept
      ? "the record is to be there at the end"
      : "the record is to be gone when it has expired",
  );
}
