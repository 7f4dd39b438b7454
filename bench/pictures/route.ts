import { bar, line, svg, text } from "../../test/support/svg.ts";
import { type Route, variantNames } from "../route/variants.ts";
import type { Spread } from "../statistics.ts";

export interface Row {
  readonly route: Route;
  /** Requests a second, bare = 1. */
  readonly throughput: Spread;
  readonly addedMs: Spread;
}

const width = 760;
const left = 150;
const middle = 430;
const row = 19;
const gap = 30;
const top = 66;

const series: Record<Route["variant"], number> = {
  bare: 0,
  ping: 1,
  scripts: 1,
  "hand-written": 2,
  guard: 3,
  protect: 3,
  once: 3,
  measured: 3,
  traced: 3,
};

const colours = [
  ["#6e7781", "#8b949e"],
  ["#afb8c1", "#6e7681"],
  ["#bf8700", "#d29922"],
  ["#1a7f37", "#3fb950"],
] as const;

/** Two columns of bars: how much of the bare route's throughput is left, and what p50 it costs. */
export function routePicture(rows: readonly Row[]): string {
  const frameworks = [...new Set(rows.map(({ route }) => route.framework))];
  const mostAdded = Math.max(...rows.map(({ addedMs }) => addedMs.most), 0.01);
  const most = Math.max(1, ...rows.map(({ throughput }) => throughput.most));
  const share = (value: number): number => left + (value / most) * 200;
  const added = (value: number): number => middle + (Math.max(0, value) / mostAdded) * 240;
  let y = top;
  const body = [
    text(left, 44, "requests a second, bare = 1", { classes: "quiet" }),
    text(middle, 44, "added p50 latency, ms", { classes: "quiet" }),
  ];
  for (const framework of frameworks) {
    body.push(text(16, y, framework, { classes: "head" }));
    y += 8;
    for (const { route, throughput, addedMs } of rows) {
      if (route.framework !== framework) continue;
      body.push(...rowOf(route, y));
      body.push(...barOf(route, throughput, y, left, share, 2));
      if (route.variant !== "bare") body.push(...barOf(route, addedMs, y, middle, added, 3));
      y += row;
    }
    y += gap;
  }
  const title = "One order route with 64 connections";
  return svg({ width, height: y - gap + 14, title, colours }, body);
}

function rowOf({ variant }: Route, y: number): string[] {
  const classes = series[variant] === 3 ? "ours" : "";
  return [text(left - 8, y + row / 2 + 4, variantNames[variant], { classes, anchor: "end" })];
}

function barOf(
  { variant }: Route,
  value: Spread,
  y: number,
  from: number,
  x: (value: number) => number,
  digits: number,
): string[] {
  const at = y + row / 2;
  const classes = series[variant] === 3 ? "ours" : "";
  return [
    bar(from, y + 2, x(value.median) - from, row - 4, series[variant]),
    line("range", [x(value.least), at], [x(value.most), at]),
    text(x(Math.max(value.most, 0)) + 6, at + 4, value.median.toFixed(digits), { classes }),
  ];
}
