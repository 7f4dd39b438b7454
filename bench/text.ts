import type { Quartiles, Spread } from "./statistics.ts";

/** A Markdown table; the first column is text, the others are numbers. */
export function table(head: readonly string[], rows: readonly (readonly string[])[]): string {
  const line = (cells: readonly string[]): string => `| ${cells.join(" | ")} |`;
  const rule = head.map((_, column) => (column === 0 ? "---" : "---:"));
  return [line(head), line(rule), ...rows.map(line)].join("\n");
}

/** `1.79 (1.70–1.85)`. */
export function spreadText({ median, least, most }: Spread, digits = 2): string {
  return `${number(median, digits)} (${number(least, digits)}–${number(most, digits)})`;
}

/** `0.97 [0.95–0.99]`: the median and the quartiles. */
export function quartilesText({ median, lower, upper }: Quartiles, digits = 2): string {
  return `${number(median, digits)} [${number(lower, digits)}–${number(upper, digits)}]`;
}

/** With a thin space between thousands. */
export function number(value: number, digits = 0): string {
  if (Number.isNaN(value)) return "–";
  const [whole = "", fraction] = value.toFixed(digits).split(".");
  const grouped = whole.replace(/\B(?=(\d{3})+$)/g, "\u2009");
  return fraction === undefined ? grouped : `${grouped}.${fraction}`;
}
