import type { Inspection } from "../lock/on-call.ts";
import { clockMs, duration } from "./durations.ts";

/** What has happened between two looks. */
export type Change = "taken" | "renewed" | "freed" | "cooldown" | "foreign" | "free";

/** `undefined` where nothing has. The first look tells what is there. */
export function changeOf(before: Inspection | undefined, now: Inspection): Change | undefined {
  if (now.state !== "held")
    return before?.state === now.state && idOf(before) === idOf(now) ? undefined : now.state;
  if (before?.state !== "held" || before.id !== now.id) return "taken";
  return (now.renewedMs ?? 0) < (before.renewedMs ?? 0) ? "renewed" : undefined;
}

function idOf(inspection: Inspection): string | undefined {
  return inspection.state === "free" ? undefined : inspection.id;
}

export function watchLine(
  at: Date,
  change: Change,
  before: Inspection | undefined,
  now: Inspection,
): string {
  return `${clockMs(at)} ${change.padEnd(8)} ${detail(change, before, now)}`.trimEnd();
}

function detail(change: Change, before: Inspection | undefined, now: Inspection): string {
  switch (now.state) {
    case "free":
      return before?.state === "held" && before.heldMs !== undefined
        ? `after about ${duration(before.heldMs)}`
        : "";
    case "held":
      if (change === "renewed") return "";
      return [
        now.holder,
        now.id,
        ...(now.heldMs === undefined || now.heldMs < 1_000 ? [] : [`${duration(now.heldMs)} ago`]),
      ]
        .filter((part) => part !== "")
        .join(" ");
    case "freed":
      return `by ${now.by} (${now.reason}), ends in ${duration(now.expiresInMs)}`;
    case "cooldown":
      return `ends in ${duration(now.expiresInMs)}`;
    case "foreign":
      return now.expiresInMs === Number.POSITIVE_INFINITY
        ? "never ends"
        : `ends in ${duration(now.expiresInMs)}`;
  }
}
