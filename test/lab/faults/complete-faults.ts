import {
  becomeReplica,
  type Fault,
  fill,
  onTheWay,
  onTheWire,
  paused,
  refusalMs,
  unreachable,
} from "./fault.ts";
import { faultNamed } from "./faults.ts";
import { type Library, submitLock, submitOnce } from "./libraries.ts";

/** `retainMs` of the submission, where a fault does not say otherwise: longer than every cell. */
export const longRetainMs = 60_000;
/** The shortest that a lock with the default times allows. */
const shortRetainMs = 2_000;

type CompleteFault = Omit<Fault, "on" | "expect" | "watchMs"> & { readonly watchMs?: number };

const several: CompleteFault[] = [
  ...onTheWay,
  {
    name: "reply late",
    what: "the reply comes after 3 s",
    strike: onTheWire((proxy, isOurs) => proxy.holdReplyOnce(isOurs, { releaseAfterMs: 3_000 })),
    watchMs: 3_500,
  },
  {
    name: "late copy",
    what: "held for 1 s, the client's socket dies at 0.1 s, the held copy still lands",
    strike: onTheWire((proxy, isOurs) =>
      proxy.holdRequestOnce(isOurs, { releaseAfterMs: 1_000, resetClientAfterMs: 100 }),
    ),
  },
  {
    name: "copy after expiry",
    what: "the same, and the held copy lands when the record has expired",
    retainMs: shortRetainMs,
    strike: onTheWire((proxy, isOurs) =>
      proxy.holdRequestOnce(isOurs, {
        releaseAfterMs: shortRetainMs + 1_000,
        resetClientAfterMs: 100,
      }),
    ),
    watchMs: shortRetainMs + 2_000,
  },
  {
    name: "full Redis",
    what: "the server is at its maxmemory for 0.8 s",
    ownServer: true,
    strike: fill,
  },
  {
    name: "READONLY",
    what: "the server is a replica for 0.8 s",
    ownServer: true,
    awayMs: refusalMs,
    strike: (target) => becomeReplica(target, "yes"),
  },
  {
    name: "Redis away",
    what: "Redis unreachable for 1 s",
    awayMs: 1_000,
    strike: unreachable(1_000, 0),
  },
  {
    name: "Redis paused",
    what: "server paused for 1 s",
    ownServer: true,
    awayMs: 1_000,
    strike: paused(1_000, 0),
  },
];

/** Those after which a copy of the acquire may land when the record is there. */
const lateAcquires = ["F3b", "F3d", "F3f", "F4"].map(faultNamed);

/** Every fault on the command that records the answer of a submission and lets go of its lock. */
export const completeFaults: Fault[] = [
  ...several.map(
    (fault): Fault => ({
      watchMs: 2_500,
      ...fault,
      name: `complete: ${fault.name}`,
      on: "complete",
      expect: "recorded",
    }),
  ),
  ...lateAcquires.map(
    (fault): Fault => ({
      ...fault,
      name: `complete: ${fault.name}`,
      what: `of a submission: ${fault.what}`,
    }),
  ),
];

/** What a fault of this lab is for: the lock, or the lock with the answer of a submission. */
export function libraryFor(fault: Fault): Library {
  if (!completeFaults.includes(fault)) return submitLock;
  return submitOnce(fault.retainMs ?? longRetainMs);
}
