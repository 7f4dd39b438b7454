import type { IncomingMessage } from "node:http";
import type { Lease } from "../lock/lease.ts";
import type { Work } from "./completion.ts";

/** A lease that a request holds, and where further work of that request is reported. */
export interface Holding {
  readonly lease: Lease;
  /** Reports a piece of work that the release has to wait for. */
  begin(): Work;
}

/** Registered, so that two copies of the package find each other's leases on one request. */
const registered: unique symbol = Symbol.for("submit-lock.holdings");
const shared = globalThis as { [registered]?: WeakMap<IncomingMessage, Holding[]> };

/**
 * Beside the requests and not on them: Express gives every request a shape of its own, so that a
 * property more is dear.
 */
shared[registered] ??= new WeakMap();
const holdings = shared[registered];

/** A lease on this key that the request holds already, whichever guard took it. */
export function findHolding(req: IncomingMessage, key: string): Holding | undefined {
  // A lease that was lost protects nothing: then the next guard makes an attempt of its own.
  return holdings.get(req)?.find(({ lease }) => lease.key === key && lease.remainingMs() > 0);
}

export function addHolding(req: IncomingMessage, holding: Holding): void {
  const held = holdings.get(req);
  if (held === undefined) holdings.set(req, [holding]);
  else held.push(holding);
}

export function removeHolding(req: IncomingMessage, holding: Holding): void {
  const others = holdings.get(req)?.filter((each) => each !== holding) ?? [];
  if (others.length === 0) holdings.delete(req);
  else holdings.set(req, others);
}
