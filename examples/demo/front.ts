import {
  createServer,
  type IncomingMessage,
  request,
  type Server,
  type ServerResponse,
} from "node:http";
import type { SubmitLock } from "submit-lock";
import { controls } from "./controls.ts";
import { formPages } from "./form-pages.ts";
import type { PaymentProvider } from "./payments/provider.ts";
import type { RedisLine } from "./redis-line.ts";
import type { ShopServer } from "./servers.ts";
import type { Database } from "./shop/database.ts";
import { staticPage } from "./static-page.ts";

export interface Demo {
  readonly framework: string;
  readonly servers: readonly ShopServer[];
  readonly db: Database;
  readonly lock: SubmitLock;
  readonly provider: PaymentProvider;
  /** The servers' line to Redis; `undefined` without a Redis. */
  readonly line: RedisLine | undefined;
}

/** Answers a request that is its own; `false` for every other one. */
export type Part = (req: IncomingMessage, res: ServerResponse, url: URL) => Promise<boolean>;

/** What a load balancer is to a shop: it serves the page, and hands the rest to the servers in turn. */
export function createFront(demo: Demo): Server {
  const parts: Part[] = [staticPage, formPages(demo), controls(demo), balance(demo.servers)];
  return createServer(async (req, res) => {
    try {
      const url = new URL(req.url ?? "/", "http://127.0.0.1");
      for (const part of parts) if (await part(req, res, url)) return;
    } catch (error) {
      console.error(error);
      if (res.headersSent) res.destroy();
      else res.writeHead(500).end();
    }
  });
}

function balance(servers: readonly ShopServer[]): Part {
  let turn = 0;
  return async (req, res) => {
    const up = servers.filter(({ port }) => port !== undefined);
    const server = up[turn++ % up.length];
    if (server === undefined) {
      res.writeHead(502).end();
      return true;
    }
    server.busy++;
    const to = request({
      host: "127.0.0.1",
      port: server.port,
      method: req.method,
      path: req.url,
      headers: { ...req.headers, connection: "close" },
      agent: false,
    });
    to.once("response", (from) => {
      res.writeHead(from.statusCode ?? 502, { ...from.headers, "x-served-by": server.name });
      from.pipe(res);
      from.once("error", () => res.destroy());
    });
    // A killed server: the customer's connection breaks, as it does without a balancer.
    to.once("error", () => res.destroy());
    to.once("close", () => server.busy--);
    // A customer who leaves leaves the server, too.
    res.once("close", () => {
      if (!res.writableFinished) to.destroy();
    });
    req.pipe(to);
    return true;
  };
}
