import type { IncomingHttpHeaders } from "node:http";
import { ShopError } from "./errors.ts";

/** A shop would verify a session or a signed token. Tokens like these are all that is known here. */
const token = /(?:^Bearer |(?:^|; )session=)token-of-([a-z0-9-]{1,40})(?:;|$)/;

/** Whose request it is, by its `Authorization` header or, for forms, by its cookie. */
export function userOf({ authorization, cookie }: IncomingHttpHeaders): string | undefined {
  return (token.exec(authorization ?? "") ?? token.exec(cookie ?? ""))?.[1];
}

/** The same, where there has to be somebody. */
export function signedIn(headers: IncomingHttpHeaders): string {
  const user = userOf(headers);
  if (user === undefined) throw new ShopError(401, "sign_in", "Sign in first.");
  return user;
}
