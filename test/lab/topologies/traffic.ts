import { setTimeout as sleep } from "node:timers/promises";
import { freshUser } from "../../support/ids.ts";
import type { Click } from "../service/clicks.ts";
import { now } from "../service/protocol.ts";
import type { Service } from "../service/service.ts";

const workMs = 40;
const pauseMs = 60;

/**
 * Customers who order again and again, half of the time with a double click that reaches both
 * services.
 */
export class Traffic {
  readonly users: readonly string[];
  readonly clicks: Click[] = [];
  readonly #services: readonly Service[];
  #underWay = 0;
  #going = true;
  readonly #done: Promise<unknown>;

  constructor(services: readonly Service[], users: number) {
    this.#services = services;
    this.users = Array.from({ length: users }, freshUser);
    this.#done = Promise.all(this.users.map((user) => this.#customer(user)));
  }

  /** How many clicks have no answer yet. */
  get unanswered(): number {
    return this.#underWay;
  }

  /** No further clicks. Those under way are answered within `boundMs`, or stay unanswered. */
  async stop(boundMs: number): Promise<void> {
    this.#going = false;
    const timer = new AbortController();
    const timeUp = sleep(boundMs, undefined, { signal: timer.signal }).catch(() => {});
    await Promise.race([this.#done, timeUp]);
    timer.abort();
  }

  async #customer(user: string): Promise<void> {
    await sleep(pauseMs * Math.random());
    while (this.#going) {
      const [one, other] = this.#inAnyOrder();
      const both = Math.random() < 0.5;
      await Promise.all([this.#click(user, one), both ? this.#click(user, other) : undefined]);
      await sleep(pauseMs * 2 * Math.random());
    }
  }

  #inAnyOrder(): readonly [Service, Service] {
    const [one, other] = this.#services as readonly [Service, Service];
    return Math.random() < 0.5 ? [one, other] : [other, one];
  }

  async #click(user: string, service: Service): Promise<void> {
    const askedAt = now();
    this.#underWay++;
    const headers = { "x-user": user, "x-work-ms": `${Math.round(workMs * 2 * Math.random())}` };
    const status = await service.client.call({ headers }).reply.then(
      (reply) => reply.status,
      () => 0,
    );
    this.#underWay--;
    this.clicks.push({ user, service: service.name, askedAt, answeredAt: now(), status });
  }
}
