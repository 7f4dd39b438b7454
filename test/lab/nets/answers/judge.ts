import { differences } from "./differences.ts";
import type { Program } from "./play.ts";
import { type Answer, textOf } from "./wire.ts";

/** Two answers that differ in one part. */
export interface Found {
  readonly program: Program;
  /** With the lock alone, at first with "once", or as its repeat. */
  readonly stage: "lock" | "first" | "repeat";
  /** "header …" with the name of the header. */
  readonly part: string;
  readonly expected: string;
  readonly got: string;
  /** Both answers. */
  readonly answers: readonly [Answer, Answer];
}

/** Of the connection and not of the answer, or new each time. */
const ignored = new Set(["date", "connection", "keep-alive"]);
/** How a body is framed: a repeat has all of it at once. */
const framing = new Set(["content-length", "transfer-encoding", "trailer"]);

/** The headers that a repeat has to have; the rest it may have. */
const kept = new Set([
  "content-type",
  "content-encoding",
  "content-language",
  "content-disposition",
  "content-location",
  "content-range",
  "link",
  "location",
  "etag",
  "last-modified",
  "cache-control",
  "vary",
  "hx-redirect",
  "x-accel-redirect",
  "x-kept",
]);

function shown(name: string, values: readonly string[] | undefined): string {
  if (values === undefined) return "none";
  // Sessions have new ids, and a time.
  if (name === "set-cookie") return values.map((each) => each.split("=")[0]).join();
  if (name !== "vary") return values.join(", ");
  return [
    ...new Set(
      values
        .join()
        .toLowerCase()
        .split(/\s*,\s*/),
    ),
  ]
    .sort()
    .join();
}

/** Every part in which an answer differs from the one that is expected. */
export function* compare(
  program: Program,
  stage: Found["stage"],
  expected: Answer,
  got: Answer,
): Iterable<Found> {
  const found = (part: string, one: string, other: string): Found[] => {
    const answers = [expected, got] as const;
    return one === other ? [] : [{ program, stage, part, expected: one, got: other, answers }];
  };
  yield* found("ending", expected.ending, got.ending);
  if (expected.ending !== "whole" || got.ending !== "whole") return;
  const isRepeat = stage === "repeat";
  // A record has no reason.
  yield* isRepeat
    ? found("status", `${expected.status}`, `${got.status}`)
    : found("status", expected.line, got.line);
  for (const name of new Set([...expected.headers.keys(), ...got.headers.keys()])) {
    if (ignored.has(name) || (isRepeat && (framing.has(name) || name === "idempotent-replayed")))
      continue;
    const one = expected.headers.get(name);
    const other = got.headers.get(name);
    // The rest belongs to outer middleware, which may set it again.
    const isPart = other === undefined || other.every((each) => one?.includes(each));
    if (isRepeat && !kept.has(name) && isPart) continue;
    yield* found(`header ${name}`, shown(name, one), shown(name, other));
  }
  yield* found("body", textOf(expected), textOf(got));
  if (!isRepeat) yield* found("trailers", expected.trailers, got.trailers);
}

/** The name of the difference that allows this. */
export function allowed(found: Found): string | undefined {
  const { family } = found.program;
  return differences.find(({ allows, families }) => families.includes(family) && allows(found))
    ?.name;
}

export function show({ expected, got, part, stage }: Found): string {
  const brief = (text: string) =>
    JSON.stringify(text.length > 300 ? `${text.slice(0, 300)}…` : text);
  return `${stage}: ${part} is ${brief(got)}, expected ${brief(expected)}`;
}
