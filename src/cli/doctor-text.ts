import type { Report, ServerReport } from "./doctor-report.ts";
import type { Finding, Level } from "./finding.ts";
import { wrapped } from "./help.ts";
import type { Paint, Tone } from "./terminal.ts";
import { visible } from "./visible.ts";

const labels: Readonly<Record<Level, readonly [label: string, tone: Tone]>> = {
  ok: ["ok", "green"],
  warn: ["warn", "yellow"],
  fail: ["FAIL", "red"],
  unknown: ["?", "dim"],
};

const width = 100;
const indent = 8;

/** Said once, above the remedies. */
const sharedServer = wrapped(
  "CONFIG SET changes the server for everybody who uses it, and is gone after a restart: CONFIG REWRITE keeps it.",
  width,
);

export function doctorText(report: Report, paint: Paint): string[] {
  const { servers, findings, user, failures, warnings } = report;
  const lines = servers.flatMap((server) => [
    paint("bold", headingOf(server, user)),
    ...server.findings.flatMap((finding) => findingText(finding, paint)),
  ]);
  // Of one server, everything is its own.
  if (servers.length > 1) lines.push(paint("bold", "all together"));
  const all = [...findings, ...servers.flatMap((server) => server.findings)];
  return [
    ...(all.some(({ remedy = "" }) => remedy.includes("CONFIG SET")) ? sharedServer : []),
    ...lines,
    ...findings.flatMap((finding) => findingText(finding, paint)),
    `${plural(failures, "failure")}, ${plural(warnings, "warning")}`,
  ];
}

function headingOf(
  { address, version, mode, role, replicas }: ServerReport,
  user: string | undefined,
): string {
  return [
    address,
    version,
    mode,
    role,
    replicas === undefined || role !== "master" ? undefined : plural(replicas, "replica"),
    user === undefined ? undefined : `as user ${user}`,
  ]
    .filter((part) => part !== undefined)
    .map(visible)
    .join(", ");
}

function findingText({ level, text, remedy }: Finding, paint: Paint): string[] {
  const [label, tone] = labels[level];
  const [first = "", ...others] = wrapped(visible(text), width - indent);
  // On lines of its own, to be copied.
  const cure = remedy === undefined ? [] : wrapped(`→ ${visible(remedy)}`, width - indent);
  return [
    `  ${paint(tone, label.padEnd(indent - 2))}${first}`,
    ...[...others, ...cure].map((line) => `${" ".repeat(indent)}${line}`),
  ];
}

function plural(count: number, noun: string): string {
  return `${count} ${noun}${count === 1 ? "" : "s"}`;
}
