import type { Holding } from "../ledger.ts";

/** One click and what became of it. */
export interface Click {
  readonly user: string;
  readonly service: string;
  readonly askedAt: number;
  readonly answeredAt: number;
  /** 0: the connection broke, or the customer left. */
  readonly status: number;
}

/** The key is taken a moment before the handler begins, and given back a moment after its end. */
const momentMs = 20;

/**
 * The longest that one user was told 409 although nobody held, in milliseconds. A 503 in between
 * does not end it. An attempt under way that never gets its answer counts as nobody, too.
 */
export function longestStranded(clicks: readonly Click[], holdings: readonly Holding[]): number {
  const held = byUser(holdings);
  let longest = 0;
  for (const [user, own] of byUser(clicks)) {
    let since: number | undefined;
    for (const { status, askedAt, answeredAt } of own) {
      const nobody = (held.get(user) ?? []).every(
        ({ from, until }) => from > answeredAt + momentMs || until < askedAt - momentMs,
      );
      if (status === 409 && nobody) {
        since ??= askedAt;
        longest = Math.max(longest, answeredAt - since);
      } else if (status === 201 || status === 409) since = undefined;
    }
  }
  return longest;
}

function byUser<T extends { readonly user: string }>(all: readonly T[]): Map<string, T[]> {
  const users = new Map<string, T[]>();
  for (const one of all) {
    const own = users.get(one.user);
    if (own === undefined) users.set(one.user, [one]);
    else own.push(one);
  }
  return users;
}
