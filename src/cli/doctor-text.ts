import type { Finding, Level } from "./finding.ts";
import { wrapped } from "./help.ts";
import type { Paint, Tone } from "./terminal.ts";

/** What `doctor` found: what `--json` prints. */
export interface Report {
  readonly servers: readonly ServerReport[];
  /** What concerns all servers together. */
  readonly findings: readonly Finding[];
  /** Who asked, where the address says it. */
  readonly user: string | undefined;
  readonly failures: number;
  readonly warnings: number;
}

/** What is `undefined` was not permitted. */
export interface ServerReport {
  readonly address: string;
  readonly version: string | undefined;
  readonly mode: string | undefined;
  readonly role: string | undefined;
  readonly replicas: number | undefined;
  readonly findings: readonly Finding[];
}

const labels: Readonly<Record<Level, readonly [label: string, tone: Tone]>> = {
  ok: ["ok", "green"],
  warn: ["warn", "yellow"],
  fail: ["FAIL", "red"],
  unknown: ["?", "dim"],
};

const width = 100;
const indent = 8;

export function doctorText(report: Report, paint: Paint): string[] {
  const { servers, findings, user, failures, warnings } = report;
  const lines = servers.flatMap((server) => [
    paint("bold", headingOf(server, user)),
    ...server.findings.flatMap((finding) => findingText(finding, paint)),
  ]);
  // Of one server, everything is its own.
  if (servers.length > 1) lines.push(paint("bold", "all together"));
  return [
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
    .join(", ");
}

function findingText({ level, text, remedy }: Finding, paint: Paint): string[] {
  const [label, tone] = labels[level];
  const whole = remedy === undefined ? text : `${text} → ${remedy}`;
  return wrapped(whole, width - indent).map((line, at) =>
    at === 0 ? `  ${paint(tone, label.padEnd(indent - 2))}${line}` : `${" ".repeat(indent)}${line}`,
  );
}

function plural(count: number, noun: string): string {
  return `${count} ${noun}${count === 1 ? "" : "s"}`;
}
