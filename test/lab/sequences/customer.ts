import { randomUUID } from "node:crypto";
import { Page, TabStorage } from "../../support/page.ts";

/** The page gives neither a name nor an id. */
export const byContent = "`submitOnce`, by content" as const;

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
  [byContent]: () => ({ send: sendWith(() => ({ name: undefined })) }),
} satisfies Record<string, () => { send: Send }>;

export type Strategy = keyof typeof strategies;

interface Sent {
  readonly page: Page;
  readonly url: string;
  readonly user: string;
  readonly cart: string;
  /** Which of two contents the cart has. */
  readonly size: number;
}
type Send = (sent: Sent) => Promise<Response>;

const orderOf = ({ user, cart, size }: Sent) => ({
  method: "POST",
  headers: { "content-type": "application/json", "x-user": user },
  body: JSON.stringify({ cart: `${cart}-${size}` }),
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

function sendWith(id: (cart: string) => { id?: string; name?: undefined }): Send {
  return (sent) => {
    const once = { name: sent.cart, timeoutMs: 300 * speed, ...id(sent.cart) };
    return sent.page.submitOnce(sent.url, { ...orderOf(sent), once });
  };
}

/** How much shorter the pauses of pages are, so that a sequence takes less than a second. */
const speed = 20;

interface Visit extends Omit<Sent, "page" | "size"> {
  readonly strategy: Strategy;
  /** Without it, storage is refused. */
  readonly hasStorage: boolean;
  /** The button cannot be clicked while an answer is awaited. */
  readonly disables: boolean;
  /** The order of a content of the cart, or of any, when the server renders its page. */
  ordered(size: number | undefined): number | undefined;
}

/** A tab with the page of a cart. */
export class Tab {
  readonly #visit: Visit;
  readonly #storage: TabStorage;
  #page!: Page;
  #send!: Send;
  #busy = 0;
  /** The numbers of the orders that the page shows as placed, by content where each is an order. */
  placed: (number | undefined)[] = [];
  /** Every order that this tab has shown as placed because of an answer. */
  readonly shown: { readonly number: number; readonly size: number }[] = [];
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
    this.#look();
  }

  /** Each content is an order only where the page gives neither name nor id. */
  get #orders(): (number | undefined)[] {
    return this.#visit.strategy === byContent ? [0, 1] : [undefined];
  }

  /** As a page with the customer's orders does. */
  #look(): void {
    this.placed = this.#orders.map((size) => this.#visit.ordered(size));
  }

  /** Whether the page shows the order of this content. */
  shows(size: number): boolean {
    return this.placed[size % this.#orders.length] !== undefined;
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

  click(size: number): void {
    if (this.shows(size) || (this.#visit.disables && this.isBusy)) return;
    void this.#submit(this.#page, size);
  }

  async #submit(page: Page, size: number): Promise<void> {
    this.#busy++;
    try {
      const answer = await this.#send({ ...this.#visit, page, size });
      const body = await answer.text();
      if (page !== this.#page) return;
      if (answer.ok) {
        const number = JSON.parse(body).number as number;
        this.placed[size % this.#orders.length] = number;
        this.shown.push({ number, size });
      } else this.errors.push(`${answer.status} ${body}`);
      // The guard says that there is an order.
      const code = answer.headers.get("submit-lock-code") ?? "";
      if (/answer_unavailable|conflict/.test(code)) this.#look();
    } catch (error) {
      if (page === this.#page) this.errors.push(String(error));
    }
    if (page === this.#page) this.#busy--;
  }
}
