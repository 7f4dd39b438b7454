import { setTimeout as sleep } from "node:timers/promises";
import { freshUser } from "../../support/ids.ts";
import { until } from "../../support/until.ts";
import type { Click } from "../service/clicks.ts";
import { now } from "../service/protocol.ts";
import type { Service } from "../service/service.ts";
import type { Random } from "../simulation/time/random.ts";

/** What a customer does next; orders are the most of it. */
const habits = [
  "order",
  "order",
  "order",
  "double click",
  "double click",
  "leave",
  "slow",
] as const;

/** Customers who order, click twice, leave in the middle, and now and then order something slow. */
export class Customers {
  clicks: Click[] = [];
  readonly #services: readonly Service[];
  readonly #random: Random;
  readonly #slowMs: number;
  #underWay = 0;
  #going = true;

  /** @param slowMs how long a slow order takes: longer than a lease lives unless it is extended. */
  constructor(services: readonly Service[], random: Random, count: number, slowMs: number) {
    this.#services = services;
    this.#random = random;
    this.#slowMs = slowMs;
    for (let i = 0; i < count; i++) void this.#live();
  }

  /** No further clicks, and all that are under way have been answered. */
  async stop(): Promise<void> {
    this.#going = false;
    await until(() => this.#underWay === 0, { what: "every click to settle", boundMs: 30_000 });
  }

  async #live(): Promise<void> {
    const random = this.#random;
    const user = freshUser();
    while (this.#going) {
      await sleep(random.between(0, 150));
      const [one, other] = random.pick([this.#services, [...this.#services].reverse()]);
      const habit = random.pick(habits);
      const isSlow = habit === "slow" && random.next() < 0.1;
      const workMs = isSlow ? random.between(1, 1.5) * this.#slowMs : random.between(0, 60);
      const leavesAfterMs = habit === "leave" ? random.between(0, 80) : undefined;
      const clicks = [this.#click(user, one, workMs, leavesAfterMs)];
      if (habit === "double click" || isSlow) clicks.push(this.#click(user, other, workMs));
      await Promise.all(clicks);
    }
  }

  async #click(
    user: string,
    service: Service | undefined,
    workMs: number,
    leavesAfterMs?: number,
  ): Promise<void> {
    if (service === undefined || !this.#going) return;
    const askedAt = now();
    this.#underWay++;
    const headers = { "x-user": user, "x-work-ms": `${Math.round(workMs)}` };
    const call = service.client.call({ headers });
    const timer = leavesAfterMs === undefined ? undefined : setTimeout(call.abort, leavesAfterMs);
    const status = await call.reply.then(
      (reply) => reply.status,
      () => 0,
    );
    clearTimeout(timer);
    this.#underWay--;
    this.clicks.push({ user, service: service.name, askedAt, answeredAt: now(), status });
  }
}
