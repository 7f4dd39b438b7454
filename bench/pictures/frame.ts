import { escaped, round } from "../../test/support/svg.ts";

export interface Frame {
  readonly width: number;
  readonly height: number;
  readonly title: string;
  /** Colours of the series: on a light page, and on a dark one. */
  readonly colours: readonly (readonly [light: string, dark: string])[];
}

/** A picture that can be read on a light page and on a dark one. */
export function svg(frame: Frame, body: readonly string[]): string {
  const { width, height, title, colours } = frame;
  const fills = (theme: 0 | 1): string =>
    colours.map((colour, at) => `.fill-${at} { fill: ${colour[theme]}; }`).join("\n");
  return `<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 ${width} ${height}" role="img" aria-label="${escaped(title)}">
<style>
text { font: 12px system-ui, sans-serif; fill: #1f2328; }
.title { font-weight: 600; font-size: 14px; }
.head { font-weight: 600; }
.quiet { fill: #59636e; }
.ours { font-weight: 600; }
.grid { stroke: #d1d9e0; stroke-width: 1; }
.one { stroke: #59636e; stroke-width: 1; stroke-dasharray: 3 3; }
.range { stroke: #1f2328; stroke-width: 1; stroke-opacity: 0.55; }
${fills(0)}
@media (prefers-color-scheme: dark) {
text { fill: #f0f6fc; }
.quiet { fill: #9198a1; }
.grid { stroke: #3d444d; }
.one { stroke: #9198a1; }
.range { stroke: #f0f6fc; }
${fills(1)}
}
</style>
<text class="title" x="16" y="22">${escaped(title)}</text>
${body.join("\n")}
</svg>
`;
}

export function text(
  x: number,
  y: number,
  content: string,
  options: { classes?: string; anchor?: "start" | "middle" | "end" } = {},
): string {
  const { classes = "", anchor = "start" } = options;
  return `<text class="${classes}" x="${round(x)}" y="${round(y)}" text-anchor="${anchor}">${escaped(content)}</text>`;
}

export function bar(x: number, y: number, width: number, height: number, series: number): string {
  return `<rect class="fill-${series}" x="${round(x)}" y="${round(y)}" width="${round(Math.max(0, width))}" height="${round(height)}" rx="2"/>`;
}

export function line(
  classes: string,
  [x1, y1]: readonly [number, number],
  [x2, y2]: readonly [number, number],
): string {
  return `<line class="${classes}" x1="${round(x1)}" y1="${round(y1)}" x2="${round(x2)}" y2="${round(y2)}"/>`;
}
