import { once } from "node:events";
import { createServer, type IncomingMessage, type ServerResponse } from "node:http";
import type { AddressInfo } from "node:net";
import { buffer } from "node:stream/consumers";

export interface Received {
  readonly method: string;
  readonly path: string;
  readonly id: string | undefined;
  readonly type: string | undefined;
  readonly body: string;
  /** Resolves when the client has closed its connection without an answer. */
  readonly left: Promise<void>;
}

/** How a request is answered. */
export type Step = (res: ServerResponse, req: IncomingMessage) => unknown;

/** An answer with a status, as `[status]`, `[status, body]` or `[status, body, headers]`. */
export type Answer = readonly [
  status: number,
  body?: object | undefined,
  headers?: Record<string, string>,
];

/** A server on loopback that answers its requests by a script, and everything after it with 201. */
export class ScriptedServer {
  readonly received: Received[] = [];
  #script: (Answer | Step)[] = [];
  readonly #server = createServer((req, res) => {
    this.#answer(req, res).catch(() => {}); // the client has left within its body
  });

  static async start(): Promise<ScriptedServer> {
    const started = new ScriptedServer();
    started.#server.listen(0, "127.0.0.1");
    await once(started.#server, "listening");
    return started;
  }

  get url(): string {
    return `http://127.0.0.1:${(this.#server.address() as AddressInfo).port}`;
  }

  /** The ids that have come, in order. */
  get ids(): (string | undefined)[] {
    return this.received.map(({ id }) => id);
  }

  /** Begins anew, with a script. */
  script(...steps: (Answer | Step)[]): void {
    this.received.length = 0;
    this.#script = steps;
  }

  close(): void {
    this.#server.close();
    this.#server.closeAllConnections();
  }

  async #answer(req: IncomingMessage, res: ServerResponse): Promise<void> {
    const id = req.headers["idempotency-key"] as string | undefined;
    const { method = "", url = "" } = req;
    const type = req.headers["content-type"];
    const body = (await buffer(req)).toString("latin1");
    const left = new Promise<void>((resolve) => {
      res.once("close", () => res.writableFinished || resolve());
    });
    this.received.push({ method, path: url, id, type, body, left });
    const step = this.#script.shift() ?? [201, { order: this.received.length }];
    if (typeof step === "function") return void step(res, req);
    const [status, json, headers] = step;
    res.writeHead(status, { "content-type": "application/json", ...headers });
    res.end(json && JSON.stringify(json));
  }
}

/** The connection is lost before an answer. */
export const lost: Step = (_res, req) => req.socket.destroy();

/** The connection is lost in the middle of an answer. */
export const brokenOff: Step = (res, req) => {
  res.writeHead(201, { "content-type": "application/json", "content-length": "100" });
  res.write('{"order":');
  setTimeout(() => req.socket.destroy(), 20);
};

/** No answer comes. */
export const silent: Step = () => {};
