import { hostname, userInfo } from "node:os";
import type { Inspection } from "../lock/store.ts";
import { longestBy } from "../validation.ts";

/** The program as a person types it. Without `--no-install`, npx may run another package. */
export const program = "npx --no-install submit-lock";

export type Paint = (tone: "bold" | "dim" | "green" | "red" | "yellow", text: string) => string;

export const plain: Paint = (_tone, text) => text;

export interface Terminal {
  readonly env: NodeJS.ProcessEnv;
  readonly canAsk: boolean;
  readonly paint: Paint;
  print(lines: readonly string[]): void;
  warn(lines: readonly string[]): void;
  /** Replaces the progress line, if stderr is a terminal; an empty text removes the line. */
  progress(text: string): void;
  /** Returns the line that the person typed, trimmed; `undefined` at the end of the input. */
  ask(question: string): Promise<string | undefined>;
}

/** Control, format and bidirectional characters, lone surrogates: terminals obey or hide them. */
const invisible = /[\p{Cc}\p{Cf}\p{Cs}\u2028\u2029]/gu;

/** Makes a text from outside, such as a customer's login name, safe to show on a terminal. */
export function visible(text: string): string {
  const escaped = (found: string) => `\\u{${found.codePointAt(0)?.toString(16).toUpperCase()}}`;
  return text.replace(invisible, escaped);
}

/** A user id within a sentence: in quotation marks where blanks at its ends would not be seen. */
export function visibleUser(user: string): string {
  return user === user.trim() ? visible(user) : `"${visible(user)}"`;
}

export function visibleTexts<Found extends Inspection>(found: Found): Found {
  const members = Object.entries(found);
  return Object.fromEntries(
    members.map(([name, value]) => [name, typeof value === "string" ? visible(value) : value]),
  ) as Found;
}

/** JSON that is safe to show on a terminal, and parses to the same value. */
export function json(value: unknown): string {
  const escaped = (unit: string) => `\\u${unit.charCodeAt(0).toString(16).padStart(4, "0")}`;
  return JSON.stringify(value).replace(invisible, (found) => found.split("").map(escaped).join(""));
}

/** Quotes a word for a shell; invisible characters become bytes, as bash, zsh and ksh read them. */
export function quoted(word: string): string {
  if (/^[\w@%+=:,./-]+$/.test(word) && !word.startsWith("-")) return word;
  if (visible(word) === word) return `'${word.replaceAll("'", "'\\''")}'`;
  const bytes = (found: string) =>
    [...Buffer.from(found)].map((byte) => `\\x${byte.toString(16).padStart(2, "0")}`).join("");
  return `$'${word.replace(/[\\']/g, "\\$&").replace(invisible, bytes)}'`;
}

export function columns(rows: readonly (readonly string[])[]): string[] {
  const widths = (rows[0] ?? []).map((_, at) =>
    Math.max(...rows.map((row) => row[at]?.length ?? 0)),
  );
  const padded = (row: readonly string[]) => row.map((cell, at) => cell.padEnd(widths[at] ?? 0));
  return rows.map((row) => padded(row).join("   ").trimEnd());
}

/** A time for a person: `0.9 s`, `25.1 s`, `3 min 20 s`, `1 h 52 min`, `3 d 4 h`, `forever`. */
export function duration(ms: number): string {
  if (ms === Number.POSITIVE_INFINITY) return "forever";
  // Round before splitting, so that no part is 60.
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

export function clock(at: Date): string {
  return at.toTimeString().slice(0, 8);
}

/** A number with its thousands separated: `812 034`. */
export function count(value: number): string {
  return String(value).replace(/\B(?=(\d{3})+$)/g, " ");
}

/** The first five, and whether there are more. */
export function firstOf(names: readonly string[]): string {
  return [...names.slice(0, 5).map(visible), ...(names.length > 5 ? ["…"] : [])].join(", ");
}

export function plural(value: number, noun: string): string {
  return `${count(value)} ${noun}${value === 1 ? "" : "s"}`;
}

export function personOf({ SUDO_USER, USER, LOGNAME, USERNAME }: NodeJS.ProcessEnv): string {
  let name = SUDO_USER || USER || LOGNAME || USERNAME;
  try {
    name ||= userInfo().username;
  } catch {
    // The account may have no entry, as in a container.
  }
  return `${name || "unknown"}@${hostname()}`.slice(0, longestBy);
}
