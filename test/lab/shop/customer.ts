import { setTimeout as sleep } from "node:timers/promises";
import type { ShopServer } from "../../../examples/demo/servers.ts";

/** How a customer was told that the order is placed. */
interface Told {
  readonly order: number;
  readonly isReplay: boolean;
}

export interface Customer {
  readonly name: string;
  readonly cart: number;
  /** Every 201. */
  readonly told: Told[];
  /** How often each status came; 0 where no answer did. */
  readonly statuses: Map<number, number>;
}

export interface Habits {
  readonly path: string;
  readonly servers: readonly ShopServer[];
  /** From 0 to 1, from the seed. */
  readonly random: () => number;
  /** `performance.now()` at which they give up. */
  readonly endMs: number;
}

/** Fills a cart and orders it as people do: twice, from two tabs, leaving, and again until told. */
export async function beImpatient(name: string, habits: Habits): Promise<Customer> {
  const { random } = habits;
  const shown = await fillCart(name, habits);
  const customer = { name, cart: shown.cart, told: [], statuses: new Map() };
  const press = (leavesAfterMs?: number) => submit(customer, shown, habits, leavesAfterMs);

  const presses = [press(random() < 0.2 ? 20 + 400 * random() : undefined)];
  // A double click, or a second tab; now and then a third.
  while (presses.length < 3 && random() < 0.6) {
    await sleep(400 * random());
    presses.push(press(random() < 0.2 ? 20 + 400 * random() : undefined));
  }
  await Promise.all(presses);
  // Nobody goes home without having been told, and some press once more.
  while (!isTold(customer) && performance.now() < habits.endMs) {
    await sleep(100 + 400 * random());
    await press();
  }
  if (random() < 0.3) await press();
  return customer;
}

/** An order, or a cart that is empty because it was ordered. */
function isTold({ told, statuses }: Customer): boolean {
  return told.length > 0 || statuses.has(422);
}

interface Shown {
  readonly cart: number;
  readonly version: number;
}

async function fillCart(name: string, habits: Habits): Promise<Shown> {
  while (performance.now() < habits.endMs) {
    const answer = await ask(name, habits, "PUT", "/cart", undefined, undefined);
    if (answer.status === 200) return answer.body as unknown as Shown;
    await sleep(100);
  }
  throw new Error(`${name} got no cart`);
}

async function submit(
  customer: Customer,
  { cart, version }: Shown,
  habits: Habits,
  leavesAfterMs: number | undefined,
): Promise<void> {
  const said = { cart, version };
  const answer = await ask(customer.name, habits, "POST", habits.path, said, leavesAfterMs);
  const { status, body, isReplay } = answer;
  customer.statuses.set(status, (customer.statuses.get(status) ?? 0) + 1);
  if (status === 201) customer.told.push({ order: Number(body["number"]), isReplay });
}

interface Answer {
  readonly status: number;
  readonly body: Record<string, unknown>;
  readonly isReplay: boolean;
}

/** Asks one of the servers, whichever. */
async function ask(
  name: string,
  { servers, random }: Habits,
  method: string,
  path: string,
  body: object | undefined,
  leavesAfterMs = 15_000,
): Promise<Answer> {
  const up = servers.filter(({ port }) => port !== undefined);
  const server = up[Math.floor(random() * up.length)];
  try {
    const answer = await fetch(`http://127.0.0.1:${server?.port}${path}`, {
      method,
      headers: {
        authorization: `Bearer token-of-${name}`,
        ...(body && { "content-type": "application/json" }),
      },
      body: body === undefined ? null : JSON.stringify(body),
      signal: AbortSignal.timeout(Math.round(leavesAfterMs)),
    });
    const isReplay = answer.headers.get("idempotent-replayed") === "true";
    return { status: answer.status, body: (await answer.json()) as Answer["body"], isReplay };
  } catch {
    return { status: 0, body: {}, isReplay: false };
  }
}
