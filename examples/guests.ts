// A guest has an id of its own in the session, and keeps the cart at login.
import { randomUUID } from "node:crypto";
import type { Request, RequestHandler } from "express";
import "express-session";
import type { SubmitLock } from "submit-lock";

declare module "express-session" {
  interface SessionData {
    /** Is set at login. */
    userId: string;
    guestId: string;
  }
}

/** With a prefix that begins no user's id. */
const guestOf = ({ session }: Request): string | undefined =>
  session.guestId && `guest:${session.guestId}`;

/** For `userId` of the guard: a customer, or a guest. */
export const buyer = (req: Request): string | undefined => req.session.userId ?? guestOf(req);

/** In front of the cart's page: it makes the id, so both clicks of a double click have it. */
export const welcome: RequestHandler = ({ session }, _res, next) => {
  if (!session.userId) session.guestId ??= randomUUID();
  next();
};

/**
 * At login, before the session is made anew: waits up to 5 s for an order under way, then moves the
 * cart. Rejects after that, or without Redis: catch it, and leave the cart to the next login.
 */
export async function takeCart(
  lock: SubmitLock,
  req: Request,
  moveCart: (from: string) => Promise<void>,
): Promise<void> {
  const guest = guestOf(req);
  if (guest) await lock.withLock(guest, { waitMs: 5_000 }, () => moveCart(guest));
}
