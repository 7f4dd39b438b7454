import type { CellResult } from "../cell.ts";
import type { Fault } from "../faults.ts";

/** Below this an orphan is a release under way, and not worth a word. */
const noticeableMs = 100;

const words: Record<CellResult["outcome"], string> = {
  acquired: "acquired",
  contended: 'told "held"',
  unavailable: "unavailable",
  error: "error",
  never: "no answer",
};

/** What all the trials of one cell came to, for people: what differs is listed, times are ranges. */
export function wordsFor(fault: Fault, trials: readonly CellResult[]): string {
  if (trials.length === 0) return "–";
  const parts = [...new Set(trials.map(({ outcome }) => outcome))].map((outcome) => {
    const of = trials.filter((trial) => trial.outcome === outcome);
    return `${words[outcome]} ${range(of.map(({ answeredMs }) => answeredMs))}`;
  });
  const said = fault.on === "acquire" ? [parts.join(" or ")] : [];
  const acquired = trials.filter(({ outcome }) => outcome === "acquired");
  if (fault.on === "acquire" && acquired.some(({ toldLost }) => toldLost)) said.push("told lost");
  if (fault.on === "release") said.push(releases(acquired));
  if (fault.on === "extend") said.push(leases(acquired));
  const orphans = trials.map(({ orphanMs }) => orphanMs);
  if (Math.max(...orphans) > noticeableMs) {
    const orphan = `key left ${range(orphans)}`;
    said.push(Math.max(...orphans) > 500 ? `**${orphan}**` : orphan);
  }
  if (trials.some(({ overlaps }) => overlaps > 0)) said.push("**two holders**");
  if (trials.some(({ unsettled }) => unsettled.length > 0)) said.push("**a call never settled**");
  return said.join(", ");
}

function releases(trials: readonly CellResult[]): string {
  const kinds = [...new Set(trials.map(({ release }) => release ?? "nothing"))];
  return kinds
    .map((kind) => {
      const of = trials.filter(({ release }) => release === kind);
      return `${kind} ${range(of.map(({ releaseMs }) => releaseMs))}`;
    })
    .join(" or ");
}

function leases(trials: readonly CellResult[]): string {
  return [
    ...new Set(trials.map(({ toldLost }) => (toldLost ? "told lost" : "kept"))),
    ...new Set(
      trials.flatMap(({ release }) => (release === "released" ? [] : [`release: ${release}`])),
    ),
  ].join(" or ");
}

/** From the least to the most, in seconds, as exactly as two digits can say. */
function range(values: readonly number[]): string {
  const digits = (ms: number) => (ms / 1_000).toFixed(ms < 1_000 ? 2 : 1);
  const [least, most] = [digits(Math.min(...values)), digits(Math.max(...values))];
  return least === most ? `${most} s` : `${least}–${most} s`;
}
