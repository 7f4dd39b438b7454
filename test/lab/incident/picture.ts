import { escaped, round } from "../../support/svg.ts";

/** One line of the picture: how many users were blocked, at each tenth of a second. */
export interface Line {
  readonly name: string;
  readonly blocked: readonly number[];
}

const width = 760;
const height = 340;
const left = 56;
const right = 16;
const top = 64;
const bottom = 48;
const perSecond = 10;

/**
 * A picture of blocked users over the run, that can be read on a light page and on a dark one.
 *
 * @param closesAt the second of the last new order; later ones are those of blocked users.
 */
export function picture(lines: readonly Line[], title: string, closesAt: number): string {
  const seconds = Math.ceil(Math.max(...lines.map(({ blocked }) => blocked.length)) / perSecond);
  const most = Math.max(1, ...lines.flatMap(({ blocked }) => blocked));
  const step = tickStep(most);
  const highest = Math.ceil(most / step) * step;
  const x = (second: number): number => round(left + (second / seconds) * (width - left - right));
  const y = (users: number): number =>
    round(height - bottom - (users / highest) * (height - top - bottom));

  const rows = ticks(highest, step).map(
    (users) =>
      `<line class="grid" x1="${left}" x2="${width - right}" y1="${y(users)}" y2="${y(users)}"/>` +
      `<text class="tick" x="${left - 8}" y="${y(users) + 4}" text-anchor="end">${users}</text>`,
  );
  const columns = ticks(seconds, 10).map(
    (second) =>
      `<text class="tick" x="${x(second)}" y="${height - bottom + 18}" text-anchor="middle">${second}</text>`,
  );
  const curves = lines.map(({ blocked }, at) => {
    const points = blocked.map((users, index) => `${x(index / perSecond)},${y(users)}`);
    return `<polyline class="line line-${at}" points="${points.join(" ")}"/>`;
  });
  let next = left;
  const legend = lines.map(({ name }, at) => {
    const from = next;
    // Wide enough for any system font.
    next = round(next + 48 + name.length * 6.6);
    return (
      `<line class="line line-${at}" x1="${from}" x2="${from + 22}" y1="44" y2="44"/>` +
      `<text x="${from + 30}" y="48">${escaped(name)}</text>`
    );
  });

  return `<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 ${width} ${height}" role="img" aria-label="${escaped(title)}">
<style>
text { font: 12px system-ui, sans-serif; fill: #1f2328; }
.title { font-weight: 600; font-size: 14px; }
.tick { fill: #59636e; }
.grid { stroke: #d1d9e0; stroke-width: 1; }
.close { stroke: #818b98; stroke-width: 1; stroke-dasharray: 2 3; }
.line { fill: none; stroke-width: 2.5; stroke-linejoin: round; }
.line-0 { stroke: #cf222e; }
.line-1 { stroke: #bf8700; stroke-dasharray: 7 4; }
.line-2 { stroke: #1a7f37; }
.line-3 { stroke: #0969da; stroke-dasharray: 1 4; }
@media (prefers-color-scheme: dark) {
text { fill: #f0f6fc; }
.tick { fill: #9198a1; }
.grid { stroke: #3d444d; }
.line-0 { stroke: #f85149; }
.line-1 { stroke: #d29922; }
.line-2 { stroke: #3fb950; }
.line-3 { stroke: #4493f8; }
}
</style>
<text class="title" x="${left}" y="22">${escaped(title)}</text>
${legend.join("\n")}
${rows.join("\n")}
<line class="close" x1="${x(closesAt)}" x2="${x(closesAt)}" y1="${top}" y2="${height - bottom}"/>
<text class="tick" x="${x(closesAt) + 6}" y="${top + 14}">no new customers</text>
${columns.join("\n")}
<text class="tick" x="${(left + width - right) / 2}" y="${height - 8}" text-anchor="middle">seconds since the shop opened</text>
<text class="tick" x="14" y="${(top + height - bottom) / 2}" text-anchor="middle" transform="rotate(-90 14 ${(top + height - bottom) / 2})">users who cannot order</text>
${curves.join("\n")}
</svg>
`;
}

/** About five ticks, at round numbers. */
function tickStep(most: number): number {
  const steps = [1, 2, 5, 10, 20, 50, 100, 200, 500, 1_000];
  return steps.find((step) => most / step <= 5) ?? 2_000;
}

function ticks(end: number, step: number): number[] {
  return Array.from({ length: Math.floor(end / step) + 1 }, (_, index) => index * step);
}
