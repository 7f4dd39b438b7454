import type { IncomingMessage } from "node:http";
import type { Demo, Part } from "./front.ts";

const noRedis =
  "needs a Redis: install redis-server, or set REDIS_URL=redis://…, and start the demo again";

/** What the buttons of the page do, and what its tables show. */
export function controls(demo: Demo): Part {
  const { line, provider, servers } = demo;
  return async (req, res, { pathname, searchParams }) => {
    if (!pathname.startsWith("/demo/")) return false;
    const answer = (status: number, body: object) => {
      res.writeHead(status, { "Content-Type": "application/json", "Cache-Control": "no-store" });
      res.end(JSON.stringify(body));
    };
    if (req.method === "GET" && pathname === "/demo/state") {
      answer(200, await stateOf(demo, searchParams.get("user") ?? "ada"));
      return true;
    }
    // A form of another site cannot send this type, so no other site can press these buttons.
    if (req.method !== "POST" || req.headers["content-type"] !== "application/json") {
      answer(404, {});
      return true;
    }
    const { away, latencyMs } = await bodyOf(req);
    switch (pathname) {
      case "/demo/redis":
        line?.setAway(away === true);
        break;
      case "/demo/kill":
        // The one that is at work.
        [...servers].sort((a, b) => b.busy - a.busy)[0]?.kill?.();
        break;
      case "/demo/latency":
        provider.behaviour.latencyMs = Math.min(Math.max(Number(latencyMs) || 0, 0), 8_000);
        break;
      case "/demo/lose-reply":
        loseNextReply(demo);
        break;
    }
    answer(200, {});
    return true;
  };
}

function loseNextReply({ provider: { behaviour } }: Demo): void {
  behaviour.losesReply = () => {
    behaviour.losesReply = () => false;
    return true;
  };
}

async function stateOf({ db, framework, line, lock, provider, servers }: Demo, user: string) {
  const orders = await db.query<{ number: number }>(
    `SELECT number, user_id AS "user", cart_id AS cart, cents, payment_id IS NOT NULL AS paid
       FROM demo_shop.orders ORDER BY number DESC LIMIT 12`,
  );
  const chargesOf = (number: number) =>
    provider.charges.filter(({ orderNumber }) => orderNumber === number).length;
  const reason = line === undefined ? noRedis : null;
  return {
    framework,
    servers: servers.map(({ name, port }) => ({ name, isUp: port !== undefined })),
    redis: line === undefined ? null : line.isAway ? "away" : "here",
    latencyMs: provider.behaviour.latencyMs,
    lock: await lockOf(lock, user),
    orders: orders.map((order) => ({ ...order, charges: chargesOf(order.number) })),
    disabled: { redis: reason, kill: reason },
  };
}

/** Asked on a line of its own: it is told also while the servers' line to Redis is cut. */
async function lockOf(lock: Demo["lock"], user: string): Promise<object> {
  return await lock.inspect(user).catch(() => ({ state: "unknown: Redis does not answer" }));
}

async function bodyOf(req: IncomingMessage): Promise<Record<string, unknown>> {
  const chunks: Buffer[] = [];
  for await (const chunk of req) chunks.push(chunk as Buffer);
  try {
    return Object(JSON.parse(Buffer.concat(chunks).toString()));
  } catch {
    return {};
  }
}
