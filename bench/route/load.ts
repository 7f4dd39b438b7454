import type { Socket } from "node:net";
import { askRaw, openRaw } from "../../test/http/crowd.ts";
import { Samples, serveJobs } from "../process/serve.ts";
import type { LoadJob, LoadResult } from "./processes.ts";

/** The clients, in a process of their own. */
let users = 0;
let keys = 0;

serveJobs<LoadJob, LoadResult, null>(null, async (job) => {
  const run = new Run(job);
  const sockets = await Promise.all(
    Array.from({ length: job.connections }, () => openRaw(job.port)),
  );
  const start = performance.now();
  await run.over(sockets);
  const elapsedMs = performance.now() - start;
  for (const socket of sockets) socket.destroy();
  return {
    requests: run.answers,
    requestsPerSecond: (run.answers / elapsedMs) * 1_000,
    statuses: run.statuses,
    ...run.samples.quantiles(),
  };
});

class Run {
  readonly samples = new Samples();
  readonly statuses: Record<string, number> = {};
  readonly #job: LoadJob;
  answers = 0;

  constructor(job: LoadJob) {
    this.#job = job;
  }

  async over(sockets: readonly Socket[]): Promise<void> {
    const end = performance.now() + this.#job.seconds * 1_000;
    const { perSecond } = this.#job;
    if (perSecond === undefined) {
      await Promise.all(sockets.map((socket) => this.#oneAfterTheOther(socket, end)));
    } else {
      await this.#paced(sockets, end, perSecond);
    }
  }

  async #oneAfterTheOther(socket: Socket, end: number): Promise<void> {
    while (performance.now() < end) await this.#request(socket);
  }

  /** A request whenever one is due, whether or not the ones before are answered. */
  async #paced(sockets: readonly Socket[], end: number, perSecond: number): Promise<void> {
    const idle = [...sockets];
    const underWay = new Set<Promise<void>>();
    let due = performance.now();
    while (performance.now() < end) {
      const socket = performance.now() >= due ? idle.shift() : undefined;
      if (socket === undefined) {
        await new Promise((resolve) => setTimeout(resolve, 1));
        continue;
      }
      // Random gaps: nothing marches in step with a timer.
      due += (1_000 / perSecond) * 2 * Math.random();
      const request = this.#request(socket).then(() => {
        idle.push(socket);
        underWay.delete(request);
      });
      underWay.add(request);
    }
    await Promise.all(underWay);
  }

  #keyOf(user: string): string {
    return this.#job.key === "new" ? `${user}-${keys++}` : "the-same";
  }

  async #request(socket: Socket): Promise<void> {
    const user = this.#job.user ?? `u${users++ % 1_000_000}`;
    const key = this.#job.key === undefined ? "" : `Idempotency-Key: ${this.#keyOf(user)}\r\n`;
    const from = performance.now();
    const status = await askRaw(
      socket,
      `POST /orders HTTP/1.1\r\nHost: shop\r\nX-User-Id: ${user}\r\n${key}Content-Length: 0\r\n\r\n`,
    );
    this.samples.add(performance.now() - from);
    this.statuses[status] = (this.statuses[status] ?? 0) + 1;
    this.answers++;
  }
}
