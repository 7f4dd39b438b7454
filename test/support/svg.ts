export interface Frame {
  readonly width: number;
  readonly height: number;
  readonly title: string;
  /** Colours of the series: on a light page, and on a dark one. */
  readonly colours: readonly (readonly [light: string, dark: string])[];
  /** Where the title begins. */
  readonly left?: number;
  /** Rules for marks of this picture alone. */
  readonly style?: string;
}

/** A picture that can be read on a light page and on a dark one. */
export function svg(frame: Frame, body: readonly string[]): string {
  const { width, height, title, colours, left = 16, style = "" } = frame;
  const series = (theme: 0 | 1): string =>
    colours
      .flatMap(({ [theme]: colour }, at) => [
        `.fill-${at} { fill: ${colour}; }`,
        `.stroke-${at} { stroke: ${colour}; }`,
      ])
      .join("\n");
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
${series(0)}
@media (prefers-color-scheme: dark) {
text { fill: #f0f6fc; }
.quiet { fill: #9198a1; }
.grid { stroke: #3d444d; }
.one { stroke: #9198a1; }
.range { stroke: #f0f6fc; }
${series(1)}
}
${style}</style>
<text class="title" x="${left}" y="22">${escaped(title)}</text>
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

/** One line through all the points. */
export function curve(classes: string, points: readonly (readonly [number, number])[]): string {
  const path = points.map(([x, y]) => `${round(x)},${round(y)}`).join(" ");
  return `<polyline class="${classes}" points="${path}"/>`;
}

/** A coordinate, to a tenth of a pixel. */
export function round(value: number): number {
  return Math.round(value * 10) / 10;
}

function escaped(text: string): string {
  return text.replaceAll("&", "&amp;").replaceAll("<", "&lt;").replaceAll('"', "&quot;");
}
