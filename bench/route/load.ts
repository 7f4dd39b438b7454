import { once } from "node:events";
import { connect, type Socket } from "node:net";
import { serveJobs } from "../process/serve.ts";
import { Samples } from "../samples.ts";
import type { LoadJob, LoadResult } from "./processes.ts";

/**
 * The clients, in a process of their own: raw sockets that are kept open and know as much of HTTP as
 * these answers need, so that the load costs little beside the server.
 */
let users = 0;
let keys = 0;

serveJobs<LoadJob, LoadResult, null>(null, async (job) => {
  const run = new Run(job);
  const sockets = await Promise.all(Array.from({ length: job.connections }, () => open(job.port)));
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

async function open(port: number): Promise<Socket> {
  const socket = connect({ port, host: "127.0.0.1", noDelay: true });
  await once(socket, "connect");
  return socket.setEncoding("latin1");
}

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

  #request(socket: Socket): Promise<void> {
    const user = this.#job.user ?? `u${users++ % 1_000_000}`;
    const key = this.#job.key === undefined ? "" : `Idempotency-Key: ${this.#keyOf(user)}\r\n`;
    const from = performance.now();
    socket.write(
      `POST /orders HTTP/1.1\r\nHost: shop\r\nX-User-Id: ${user}\r\n${key}Content-Length: 0\r\n\r\n`,
    );
    return new Promise((resolve, reject) => {
      let text = "";
      const more = (chunk: string): void => {
        text += chunk;
        if (!isWhole(text)) return;
        socket.off("data", more);
        socket.off("close", closed);
        this.samples.add(performance.now() - from);
        const status = text.slice(9, 12);
        this.statuses[status] = (this.statuses[status] ?? 0) + 1;
        this.answers++;
        resolve();
      };
      const closed = (): void => reject(new Error("the server closed a connection"));
      socket.on("data", more);
      socket.once("close", closed);
    });
  }
}

/** Every answer of these routes says how long it is. */
function isWhole(text: string): boolean {
  const head = text.indexOf("\r\n\r\n");
  if (head < 0) return false;
  const length = /\r\ncontent-length: (\d+)/i.exec(text)?.[1];
  if (length === undefined) throw new Error(`an answer without a length: ${text}`);
  return text.length >= head + 4 + Number(length);
}
