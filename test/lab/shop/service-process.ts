import type { EventEmitter } from "node:events";
import { once } from "node:events";
import { createServer, type IncomingMessage, type ServerResponse } from "node:http";
import type { AddressInfo, Socket } from "node:net";
import { setTimeout as sleep } from "node:timers/promises";
import { type Lease, RedisStore, SubmitLock } from "../../../src/index.ts";
import { all } from "../../http/frameworks.ts";
import type { Turn } from "../../http/turn.ts";
import { connect } from "./connect.ts";
import { type FromService, now, type Settings, type ToService, type Vitals } from "./protocol.ts";

/**
 * A shop in a process of its own, as the README says to build one: `service-process.ts SETTINGS`.
 * An order is a POST to `/orders`, through the guard. The headers `x-user` and `x-order` name the
 * user and the submission. `x-work-ms` is how long an order takes.
 */
const settings = JSON.parse(process.argv[2] ?? "{}") as Settings;
const framework = all.find(({ name }) => name === settings.framework);
if (framework === undefined) throw new Error(`There is no framework ${settings.framework}.`);

const tell = (message: FromService) => {
  if (process.connected) process.send?.(message);
};
// Nobody is there any more who would end it.
const orphaned = () => process.exit();
process.once("disconnect", orphaned);
// A warning is how Node tells of too many listeners.
for (const event of ["unhandledRejection", "uncaughtException", "warning"]) {
  process.on(event, (error) => tell({ uncaught: String((error as Error)?.stack ?? error) }));
}

const { redis, end } = connect(settings.target, settings.redisClient);
const lock = new SubmitLock({ store: new RedisStore(redis, settings.store), ...settings.times });

let underWay = 0;
const arrivedAt = new WeakMap<IncomingMessage, number>();
const held = new Map<string, Lease>();

/** Tells that an order is being placed. @returns tells that it is placed */
function begin(lease: Lease, req: IncomingMessage): () => void {
  const { ownerId, fencingToken, signal } = lease;
  const { "x-user": user, "x-order": order } = req.headers;
  const at = now();
  const about = { user: String(user), order: order as string | undefined, fencingToken };
  tell({ begun: ownerId, ...about, askedAt: arrivedAt.get(req) ?? at, at });
  // Heard in the moment in which it is told, as in a handler that hands the signal on.
  signal.addEventListener("abort", () => {
    held.delete(ownerId);
    tell({ ended: ownerId, at: now(), lost: signal.reason.reason });
  });
  held.set(ownerId, lease);
  return () => {
    held.delete(ownerId);
    tell({ ended: ownerId, at: now() });
  };
}

const header = ({ headers }: IncomingMessage, name: string) => Number(headers[name] ?? 0);

/** What an order is answered; 500 where its lease was lost, because it stops there. */
async function place(lease: Lease, req: IncomingMessage): Promise<[status: number, body: object]> {
  underWay++;
  const placed = begin(lease, req);
  try {
    await sleep(header(req, "x-work-ms"), undefined, { signal: lease.signal });
    placed();
    return [201, { placed: true }];
  } catch {
    return [500, { placed: false }];
  } finally {
    underWay--;
  }
}

const handler = async (turn: Turn): Promise<void> => {
  const { lease, req } = turn;
  if (lease === undefined) throw new Error("There is no order without a lease.");
  turn.answer(...(await place(lease, req)));
};

const listener = framework.listener({
  lock,
  handler,
  ...(settings.idempotency && { guard: { idempotency: {} } }),
});
const server = createServer((req: IncomingMessage, res: ServerResponse) => {
  arrivedAt.set(req, now());
  listener(req, res);
});
// A connection that ends as idle in the moment of its next request would look like a fault.
server.keepAliveTimeout = 0;
const sockets = new Set<Socket>();
server.on("connection", (socket: Socket) => {
  sockets.add(socket);
  socket.once("close", () => sockets.delete(socket));
});

if (settings.tellsBelief) {
  // So often that what is heard last, before this process is stopped, is what it went on to believe.
  setInterval(() => {
    const valid = [...held.values()].filter((lease) => lease.remainingMs() > 0);
    tell({ believed: valid.map((lease) => [lease.ownerId, now() + lease.remainingMs()]) });
  }, 10);
}

process.on("message", ({ ask }: ToService) => {
  if (ask === "vitals") void vitals().then((seen) => tell({ vitals: seen }));
});

async function vitals(): Promise<Vitals> {
  // Twice with a turn between: what a first collection has finalised goes with the second.
  for (let round = 0; round < 2; round++) {
    await sleep(10);
    globalThis.gc?.();
  }
  const { heapUsed, external } = process.memoryUsage();
  const resources: Record<string, number> = {};
  for (const kind of process.getActiveResourcesInfo()) {
    resources[kind] = (resources[kind] ?? 0) + 1;
  }
  const { stream } = redis as { stream?: EventEmitter };
  const counts = [...sockets, ...(stream === undefined ? [] : [stream])].map(listenersOf);
  return {
    heapBytes: heapUsed,
    externalBytes: external,
    resources,
    clientListeners: listenersOf(redis as unknown as EventEmitter),
    socketListeners: Math.max(0, ...counts),
    requestsUnderWay: underWay,
  };
}

function listenersOf(emitter: EventEmitter): number {
  return emitter.eventNames().reduce((sum, event) => sum + emitter.listenerCount(event), 0);
}

// In the README's order.
process.once("SIGTERM", async () => {
  const closed = new Promise((resolve) => server.close(resolve));
  const sweeping = setInterval(() => server.closeIdleConnections(), 50);
  await closed;
  clearInterval(sweeping);
  await lock.close();
  end();
  tell({ drained: true });
  process.off("disconnect", orphaned);
  process.channel?.unref();
  // One that does not end says what keeps it.
  setTimeout(() => {
    const uncaught = `kept alive by ${process.getActiveResourcesInfo()}`;
    process.send?.({ uncaught }, () => process.exit(1));
  }, 20_000).unref();
});

// Within a short `commandTimeoutMs`, a busy machine may not be able to answer the first time.
const submissions = settings.idempotency === true;
const check = () => lock.check({ submissions }).then(() => "passed", String);
let checked = await check();
for (let tries = 1; checked !== "passed" && tries < 10; tries++) checked = await check();
if (checked !== "passed") throw new Error(checked);
server.listen(0, "127.0.0.1");
await once(server, "listening");
tell({ port: (server.address() as AddressInfo).port });
