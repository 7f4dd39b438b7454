import { UsageError } from "./failure.ts";

/** A time for a person: `0.9 s`, `25.1 s`, `3 min 20 s`, `1 h 52 min`, `3 d 4 h`. */
export function duration(ms: number): string {
  if (ms === Number.POSITIVE_INFINITY) return "for ever";
  // Rounded before it is split, so that no part says 60.
  const tenths = Math.round(ms / 100);
  if (tenths < 600) return `${(tenths / 10).toFixed(1)} s`;
  const seconds = Math.round(ms / 1_000);
  if (seconds < 3_600) return parts(seconds, 60, "min", 1, "s");
  if (seconds < 86_400) return parts(seconds, 3_600, "h", 60, "min");
  return parts(seconds, 86_400, "d", 3_600, "h");
}

function parts(seconds: number, large: number, one: string, small: number, two: string): string {
  const rest = Math.floor((seconds % large) / small);
  return `${Math.floor(seconds / large)} ${one}${rest === 0 ? "" : ` ${rest} ${two}`}`;
}

/** The local time of day: `13:05:02`. */
export function clock(at: Date): string {
  return [at.getHours(), at.getMinutes(), at.getSeconds()]
    .map((part) => String(part).padStart(2, "0"))
    .join(":");
}

/** The same with milliseconds. */
export function clockMs(at: Date): string {
  return `${clock(at)}.${String(at.getMilliseconds()).padStart(3, "0")}`;
}

/** A count with its thousands apart: `812 034`. */
export function count(value: number): string {
  return String(value).replace(/\B(?=(\d{3})+$)/g, " ");
}

const units: Readonly<Record<string, number>> = {
  ms: 1,
  s: 1_000,
  min: 60_000,
  m: 60_000,
  h: 3_600_000,
};

/** What a person typed for a time: `500ms`, `30s`, `2min`, `1h`. In milliseconds. */
export function parseDuration(option: string, text: string): number {
  const [, digits = "", unit = ""] = /^(\d+(?:\.\d+)?)(ms|s|min|m|h)$/.exec(text) ?? [];
  const ms = Number(digits) * (units[unit] ?? Number.NaN);
  if (digits === "" || !Number.isFinite(ms)) {
    throw new UsageError(`--${option}: expected a time such as 30s, 2min or 1h, got "${text}"`);
  }
  return ms;
}
