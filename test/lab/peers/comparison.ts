import type { CellResult } from "../faults/cell.ts";
import type { Fault } from "../faults/fault.ts";

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
  const release = releaseTrouble(acquired);
  if (fault.on === "acquire" && release) said.push(release);
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
  const kept = new Set(trials.map(({ toldLost }) => (toldLost ? "told lost" : "kept")));
  const release = releaseTrouble(trials);
  return [...kept].join(" or ") + (release ? `, ${release}` : "");
}

function releaseTrouble(trials: readonly CellResult[]): string {
  const kinds = new Set(trials.flatMap(({ release }) => (release === "released" ? [] : release)));
  return kinds.size === 0 ? "" : `release: ${[...kinds].join(" or ")}`;
}

/** What a library's cells come to over all the faults and clients: numbers of trials, and the worst. */
export function summaryOf(trials: readonly CellResult[]) {
  const onTheWay = trials.filter(({ fault }) => /^F[1-4](?!\d)/.test(fault));
  const count = (of: readonly CellResult[], counts: (trial: CellResult) => boolean): string =>
    `${of.filter(counts).length} of ${of.length}`;
  const left = Math.max(0, ...trials.map(({ orphanMs }) => orphanMs));
  return {
    "F1a–F4: acquired within 0.3 s": count(
      onTheWay,
      ({ outcome, answeredMs }) => outcome === "acquired" && answeredMs <= 300,
    ),
    'F1a–F4: told "held"': count(onTheWay, ({ outcome }) => outcome === "contended"),
    "key left for more than 0.5 s": count(trials, ({ orphanMs }) => orphanMs > 500),
    "longest key left": `${(left / 1_000).toFixed(1)} s`,
    "two holders": count(trials, ({ overlaps }) => overlaps > 0),
  };
}

/** From the least to the most, in seconds. */
function range(values: readonly number[]): string {
  const [least, most] = [Math.min(...values), Math.max(...values)];
  const digits = most < 995 ? 2 : 1;
  const [from, to] = [(least / 1_000).toFixed(digits), (most / 1_000).toFixed(digits)];
  return from === to ? `${to} s` : `${from}–${to} s`;
}
