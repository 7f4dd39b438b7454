import type { Inspection } from "../lock/store.ts";
import { performance, sleep } from "../time.ts";
import { answerOf } from "./connect.ts";
import type { Context } from "./context.ts";
import { clock, duration, json, visible, visibleTexts } from "./terminal.ts";

const everyMs = 200;

export async function watch({ args, terminal, open }: Context): Promise<undefined> {
  const endsAt = performance.now() + args.duration("for", Number.POSITIVE_INFINITY);
  const { address, locks } = await open();
  const [lock] = locks;
  let before: Inspection | undefined;
  for (;;) {
    const found = await answerOf(address, lock.inspect(args.user));
    const change = changeOf(before, found);
    if (change !== undefined) {
      const time = new Date();
      const line = args.has("json")
        ? json({ time: time.toISOString(), userId: args.user, change, ...found })
        : watchLine(time, change, visibleTexts(found), before);
      terminal.print([line]);
    }
    before = found;
    if (performance.now() + everyMs > endsAt) return;
    await sleep(everyMs);
  }
}

/** Names the change between two looks; `undefined` for none. The first look is always a change. */
export function changeOf(before: Inspection | undefined, now: Inspection): string | undefined {
  const idOf = (found?: Inspection) => found !== undefined && "id" in found && found.id;
  const isSame = before?.state === now.state && idOf(before) === idOf(now);
  const [outlived, earlier] = [now.outlived?.length ?? 0, before?.outlived?.length ?? 0];
  if (isSame && outlived !== earlier) return outlived > earlier ? "outlived" : "ended";
  if (now.state !== "held") return isSame ? undefined : now.state;
  if (!isSame || before.state !== "held") return "taken";
  return (now.renewedMs ?? 0) < (before.renewedMs ?? 0) ? "renewed" : undefined;
}

export function watchLine(at: Date, change: string, now: Inspection, before?: Inspection): string {
  const ms = String(at.getMilliseconds()).padStart(3, "0");
  const ended = "an order that had outlived its lock";
  const detail = { renewed: "", ended }[change] ?? detailOf(now, before);
  const outlived = (now.outlived ?? []).map(
    ({ endedMs, holder }) =>
      `an order outlived its lock, which ended ${duration(endedMs)} ago, and may still be at work at ${visible(holder)}`,
  );
  const whole = [detail, ...outlived].filter((part) => part !== "").join("; ");
  return `${clock(at)}.${ms} ${change.padEnd(8)} ${whole}`.trimEnd();
}

function detailOf(now: Inspection, before?: Inspection): string {
  if (now.state === "free") {
    const heldMs = before?.state === "held" ? before.heldMs : undefined;
    return heldMs === undefined ? "" : `after about ${duration(heldMs)}`;
  }
  if (now.state === "held") {
    const { holder, id, heldMs = 0 } = now;
    const since = heldMs < 1_000 ? "" : `${duration(heldMs)} ago`;
    return [holder, id, since].filter((part) => part !== "").join(" ");
  }
  const left = duration(now.expiresInMs);
  const end = left === "forever" ? "never ends" : `ends in ${left}`;
  return now.state === "freed" ? `by ${now.by} (${now.reason}), ${end}` : end;
}
