import { ShopError } from "./errors.ts";

export interface Charge {
  readonly orderNumber: number;
  readonly cents: number;
}

/** How often a charge is asked for until it is answered. */
const tries = 3;

/** The payment provider, as the shop sees it: a service behind HTTP. */
export class Payments {
  readonly #url: string;
  readonly #timeoutMs: number;
  readonly #isKeyed: boolean;

  /**
   * @param timeoutMs how long one answer is waited for. @defaultValue 15 000
   * @param keyed `false` shows what happens without the provider's key. @defaultValue true
   */
  constructor(url: string, { timeoutMs = 15_000, keyed = true } = {}) {
    this.#url = url;
    this.#timeoutMs = timeoutMs;
    this.#isKeyed = keyed;
  }

  /**
   * Charges an order once, however often it is called and whichever of the answers is lost: the key
   * is the order's own number, which a second run finds in the database.
   *
   * @param signal aborts when the lock was lost; the promise then rejects with its reason.
   * @returns the provider's id of the payment.
   */
  async charge(charge: Charge, signal: AbortSignal | undefined): Promise<string> {
    for (let attempt = 1; ; attempt++) {
      try {
        return await this.#ask(charge, signal);
      } catch (error) {
        signal?.throwIfAborted();
        if (error instanceof ShopError) throw error;
        // No answer does not mean no charge.
        if (attempt === tries) {
          const detail = "Your payment was not confirmed. Press the button again: you pay once.";
          throw new ShopError(504, "payment_unconfirmed", detail);
        }
      }
    }
  }

  async #ask({ orderNumber, cents }: Charge, signal: AbortSignal | undefined): Promise<string> {
    const timeout = AbortSignal.timeout(this.#timeoutMs);
    const answer = await fetch(`${this.#url}/charges`, {
      method: "POST",
      headers: {
        "Content-Type": "application/json",
        ...(this.#isKeyed && { "Idempotency-Key": `order-${orderNumber}` }),
      },
      body: JSON.stringify({ orderNumber, cents }),
      signal: signal === undefined ? timeout : AbortSignal.any([timeout, signal]),
    });
    if (answer.status >= 500) throw new Error(`the provider answered ${answer.status}`);
    if (!answer.ok) throw new ShopError(402, "payment_refused", "Your payment was refused.");
    return ((await answer.json()) as { id: string }).id;
  }
}
