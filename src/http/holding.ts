import type { IncomingMessage } from "node:http";
import type { Lease } from "../lock/lease.ts";
import type { Work } from "./settlement.ts";

/** A lease that a request holds, and where further work of that request is reported. */
export interface Holding {
  readonly lease: Lease;
  /** Reports a piece of work that the release has to wait for. */
  begin(): Work;
}

/** Registered, so that two copies of the package find each other's leases on one request. */
const holdingsOf = Symbol.for("submit-lock.holdings");

interface Holder {
  [holdingsOf]?: Holding[];
}

/** A lease on this key that the request holds already, whichever guard took it. */
export function findHolding(req: IncomingMessage, key: string): Holding | undefined {
  // A lease that was lost protects nothing: then the next guard makes an attempt of its own.
  return (req as Holder)[holdingsOf]?.find(
    ({ lease }) => lease.key === key && lease.remainingMs() > 0,
  );
}

export function addHolding(req: IncomingMessage, holding: Holding): void {
  const holder = req as Holder;
  holder[holdingsOf] ??= [];
  holder[holdingsOf].push(holding);
}

export function removeHolding(req: IncomingMessage, holding: Holding): void {
  const holdings = (req as Holder)[holdingsOf];
  const at = holdings?.indexOf(holding) ?? -1;
  if (at >= 0) holdings?.splice(at, 1);
}
