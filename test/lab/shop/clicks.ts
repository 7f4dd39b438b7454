import type { Reply } from "../../http/http-client.ts";
import type { Holding } from "./ledger.ts";
import { now } from "./protocol.ts";
import type { Service } from "./service.ts";

/** One click and what became of it. */
export interface Click {
  readonly user: string;
  readonly service: string;
  readonly askedAt: number;
  readonly answeredAt: number;
  /** 0: the connection broke, or the customer left. */
  readonly status: number;
  readonly reply?: Reply;
}

/** What a customer clicks on. */
export interface Order {
  readonly user: string;
  /** The submission, for a shop whose orders have a name. */
  readonly order?: string;
  /** The `Idempotency-Key`. */
  readonly key?: string;
  readonly workMs?: number;
  /** Other headers. */
  readonly headers?: Readonly<Record<string, string>>;
  readonly leavesAfterMs?: number | undefined;
}

/** A click; resolves also where no answer comes. */
export async function click(service: Service, asked: Order): Promise<Click> {
  const { headers, key, leavesAfterMs, order, user, workMs = 0 } = asked;
  const askedAt = now();
  const call = service.client.call({
    headers: {
      "x-user": user,
      "x-work-ms": `${Math.round(workMs)}`,
      ...(order !== undefined && { "x-order": order }),
      ...(key !== undefined && { "idempotency-key": key }),
      ...headers,
    },
  });
  const leaving = leavesAfterMs === undefined ? undefined : setTimeout(call.abort, leavesAfterMs);
  const reply = await call.reply.catch(() => undefined);
  clearTimeout(leaving);
  const { status = 0 } = reply ?? {};
  const about = { user, service: service.name, askedAt, answeredAt: now(), status };
  return reply === undefined ? about : { ...about, reply };
}

/** So many customers at once. */
export async function crowd(count: number, customer: () => Promise<void>): Promise<void> {
  await Promise.all(Array.from({ length: count }, customer));
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

const everyMs = 20;

/**
 * Customers who are not logged in: what a service answers them takes what HTTP takes on this
 * machine under this load, and no Redis. Whoever else is answered has waited for as long, too.
 */
export class Anonymous {
  #worstMs = 0;
  #going = true;

  constructor(services: readonly Service[]) {
    for (const service of services) void this.#come(service);
  }

  /** No further requests. @returns how long the slowest answer took, in milliseconds. */
  stop(): number {
    this.#going = false;
    return this.#worstMs;
  }

  async #come(service: Service): Promise<void> {
    while (this.#going) {
      const from = now();
      const waiting = setInterval(() => this.#note(now() - from), everyMs);
      await service.client.call({}).reply.catch(() => {});
      clearInterval(waiting);
      this.#note(now() - from);
      await new Promise((resolve) => setTimeout(resolve, everyMs));
    }
  }

  #note(ms: number): void {
    if (this.#going) this.#worstMs = Math.max(this.#worstMs, ms);
  }
}
