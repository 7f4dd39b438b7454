/** One request of the customer. */
export interface Line {
  readonly label: string;
  readonly startMs: number;
  readonly endMs: number;
  /** What came back. */
  readonly outcome: string;
  /** The customer did not wait for the answer. */
  readonly aborted?: boolean;
  /** Not a request, but the work behind one. */
  readonly work?: boolean;
}

const width = 44;
const labelWidth = 16;

/**
 * Lines on one time axis:
 *
 *                     0 ms               400               800 ms
 *     click 1         |======================================|   201 order 1
 *     click 2         ||                                         409 submit_contended
 */
export function timeline(lines: readonly Line[]): string {
  const endMs = Math.max(1, ...lines.map((line) => line.endMs));
  const column = (ms: number) => Math.round((ms / endMs) * (width - 1));
  const rows = lines.map((line) => {
    const from = column(line.startMs);
    // An answer that came at once is still seen.
    const to = Math.min(Math.max(column(line.endMs), from + 1), width);
    const fill = (line.work ? "." : "=").repeat(to - from - 1);
    const bar = `${" ".repeat(from)}|${fill}${line.aborted ? "x" : "|"}`;
    return `${label(line.label)}${bar.padEnd(width + 2)} ${line.outcome}`;
  });
  return [label("") + axis(endMs), ...rows].join("\n");
}

function axis(endMs: number): string {
  const end = `${Math.round(endMs)} ms`;
  const middle = String(Math.round(endMs / 2));
  const left = "0 ms".padEnd(Math.round((width - middle.length) / 2)) + middle;
  return left.padEnd(width - end.length) + end;
}

function label(text: string): string {
  return `  ${text.padEnd(labelWidth)}`;
}
