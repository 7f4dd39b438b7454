import { randomUUID } from "node:crypto";
import { Page, TabStorage } from "../../support/page.ts";

/** How a page makes the id of an order and what it does without an answer. */
export const strategies = {
  "`fetch` without a key": () => ({ send: sendOnce(() => undefined) }),
  "`fetch`, a key for each click": () => ({ send: sendOnce(() => randomUUID()) }),
  "`fetch`, a key for each load of the page": () => {
    const key = randomUUID();
    return { send: sendOnce(() => key) };
  },
  "`submitOnce`": () => ({ send: sendWith(() => ({})) }),
  "`submitOnce` with `id`": () => ({ send: sendWith((cart) => ({ id: `${cart}:1` })) }),
} satisfies Record<string, () => { send: Send }>;

export type Strategy = keyof typeof strategies;

interface Sent {
  readonly page: Page;
  readonly url: string;
  readonly user: string;
  readonly cart: string;
}
type Send = (sent: Sent) => Promise<Response>;

const orderOf = ({ user, cart }: Sent) => ({
  method: "POST",
  headers: { "content-type": "application/json", "x-user": user },
  body: JSON.stringify({ cart }),
});

function sendOnce(key: () => string | undefined): Send {
  return (sent) => {
    const id = key();
    const { headers, ...order } = orderOf(sent);
    const all = id === undefined ? headers : { ...headers, "idempotency-key": id };
    const signal = AbortSignal.timeout(300);
    return sent.page.fetch(sent.url, { ...order, headers: all, signal });
  };
}

function sendWith(id: (cart: string) => { id?: string }): Send {
  return (sent) => {
    const once = { name: sent.cart, timeoutMs: 300 * speed, ...id(sent.cart) };
    return sent.page.submitOnce(sent.url, { ...orderOf(sent), once });
  };
}

/** How much shorter the pauses of pages are, so that a sequence takes less than a second. */
const speed = 20;

interface Visit extends Omit<Sent, "page"> {
  readonly strategy: Strategy;
  /** Without it, storage is refused. */
  readonly hasStorage: boolean;
  /** The button cannot be clicked while an answer is awaited. */
  readonly disables: boolean;
  /** The order of the cart, when the server renders its page. */
  ordered(): number | undefined;
}

/** A tab with the page of a cart. */
export class Tab {
  readonly #visit: Visit;
  readonly #storage: TabStorage;
  #page!: Page;
  #send!: Send;
  #busy = 0;
  /** The number of the order that the page shows as placed. */
  placed: number | undefined;
  /** Every order that this tab has shown as placed because of an answer. */
  readonly shown: number[] = [];
  readonly errors: string[] = [];

  constructor(visit: Visit, storage: TabStorage = new TabStorage()) {
    this.#visit = visit;
    this.#storage = storage;
    this.#load();
  }

  get isBusy(): boolean {
    return this.#busy > 0;
  }

  #load(): void {
    const { strategy, hasStorage } = this.#visit;
    this.#page = new Page({ speed, storage: hasStorage ? this.#storage : undefined });
    this.#send = strategies[strategy]().send;
    // Made before the click, so that a tab that is duplicated has the same.
    if (strategy === "`submitOnce`") this.#page.module.idOf(this.#visit.cart);
    this.#busy = 0;
    this.placed = this.#visit.ordered();
  }

  reload(): void {
    this.#page.close();
    this.#load();
  }

  duplicate(): Tab {
    return new Tab(this.#visit, new TabStorage(this.#storage.items));
  }

  close(): void {
    this.#page.close();
  }

  click(): void {
    if (this.placed !== undefined || (this.#visit.disables && this.isBusy)) return;
    void this.#submit(this.#page);
  }

  async #submit(page: Page): Promise<void> {
    this.#busy++;
    try {
      const answer = await this.#send({ ...this.#visit, page });
      const body = await answer.text();
      if (page !== this.#page) return;
      if (answer.ok) {
        this.placed = JSON.parse(body).number as number;
        this.shown.push(this.placed);
      } else this.errors.push(`${answer.status} ${body}`);
    } catch (error) {
      if (page === this.#page) this.errors.push(String(error));
    }
    if (page === this.#page) this.#busy--;
  }
}
