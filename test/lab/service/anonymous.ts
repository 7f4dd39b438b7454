import { now } from "./protocol.ts";
import type { Service } from "./service.ts";

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
