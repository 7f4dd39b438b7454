import { once } from "node:events";
import { Redis } from "ioredis";

const everyMs = 10;

export const lateSteps = 4;

/**
 * How late a machine was in a span of time: timers of this process, and exchanges with a Redis that
 * nobody disturbs. What is measured beside it cannot be more punctual.
 */
export class Pulse {
  /** The worst so far, in milliseconds. */
  #worstMs = 0;
  #dueAt = Number.POSITIVE_INFINITY;
  #timer: NodeJS.Timeout | undefined;
  readonly #redis: Redis;

  /** @param port of a server that is not to be disturbed. */
  static async of(port: number): Promise<Pulse> {
    const redis = new Redis(port, "127.0.0.1", { enableReadyCheck: false });
    redis.on("error", () => {});
    await once(redis, "ready");
    return new Pulse(redis);
  }

  private constructor(redis: Redis) {
    this.#redis = redis;
    this.#beat();
  }

  /** The worst lateness since the pulse was taken, what is overdue at the moment included. */
  get worstMs(): number {
    return Math.max(this.#worstMs, performance.now() - this.#dueAt);
  }

  /**
   * How long something may have taken that takes `ms` on a machine that is never late: it is made of
   * a timer, a new connection with its handshake and a command at most, and each may be that late.
   */
  atMost(ms: number): number {
    return ms + lateSteps * this.worstMs;
  }

  stop(): void {
    clearTimeout(this.#timer);
    this.#dueAt = Number.POSITIVE_INFINITY;
    this.#redis.disconnect();
  }

  #beat(): void {
    this.#dueAt = performance.now() + everyMs;
    this.#timer = setTimeout(async () => {
      await this.#redis.ping().catch(() => {});
      if (this.#dueAt === Number.POSITIVE_INFINITY) return;
      this.#worstMs = this.worstMs;
      this.#beat();
    }, everyMs);
  }
}

/**
 * How long the machine kept this process from running in a span of time: how late its timers were,
 * without the processor time that the process used itself. Code that blocks its own event loop is not
 * excused by it.
 */
export class Starvation {
  #worstMs = 0;
  #dueAt = 0;
  #usedMs = 0;
  #timer: NodeJS.Timeout | undefined;

  constructor() {
    this.#beat();
  }

  /** The worst since it began, in milliseconds, of this moment included. */
  get worstMs(): number {
    const late = performance.now() - this.#dueAt - (processorMs() - this.#usedMs);
    return Math.max(this.#worstMs, late);
  }

  stop(): void {
    clearTimeout(this.#timer);
    this.#worstMs = this.worstMs;
    this.#dueAt = Number.POSITIVE_INFINITY;
  }

  #beat(): void {
    this.#dueAt = performance.now() + everyMs;
    this.#usedMs = processorMs();
    this.#timer = setTimeout(() => {
      this.#worstMs = this.worstMs;
      this.#beat();
    }, everyMs);
    this.#timer.unref();
  }
}

function processorMs(): number {
  const { system, user } = process.cpuUsage();
  return (system + user) / 1_000;
}
