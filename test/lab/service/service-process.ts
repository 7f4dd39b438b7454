import type { EventEmitter } from "node:events";
import { once } from "node:events";
import type { Server } from "node:http";
import type { AddressInfo, Socket } from "node:net";
import { setTimeout as sleep } from "node:timers/promises";
import { RedisStore, SubmitLock } from "../../../src/index.ts";
import { frameworks } from "../../http/frameworks.ts";
import type { Turn } from "../../http/turn.ts";
import { connect } from "./connect.ts";
import { type FromService, now, type Settings, type ToService, type Vitals } from "./protocol.ts";

/**
 * A shop in a process of its own, as the README says to build one: `service-process.ts SETTINGS`.
 * The header `x-work-ms` says how long an order takes; an order whose lease is lost stops there.
 */
const settings = JSON.parse(process.argv[2] ?? "{}") as Settings;
const framework = frameworks.find(({ name }) => name === settings.framework);
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

const { redis, quit } = connect(settings.target, settings.redisClient);
const lock = new SubmitLock({ store: new RedisStore(redis, settings.store), ...settings.times });

let underWay = 0;
const handler = async (turn: Turn): Promise<void> => {
  const { lease, req } = turn;
  if (lease === undefined) throw new Error("There is no order without a lease.");
  underWay++;
  const { fencingToken, ownerId } = lease;
  tell({ begun: ownerId, user: String(req.headers["x-user"]), fencingToken, at: now() });
  const { signal } = lease;
  const end = (lost: boolean) => tell({ ended: ownerId, at: now(), lost });
  // Heard in the moment in which it is told, as in a handler that hands the signal on.
  signal.addEventListener("abort", () => end(true));
  try {
    await sleep(Number(req.headers["x-work-ms"] ?? 0), undefined, { signal });
    end(false);
    turn.answer(201, { placed: true });
  } catch {
    turn.answer(500, { placed: false });
  } finally {
    underWay--;
  }
};

const server = framework.makeServer({ lock, handler }) as Server;
// A connection that ends as idle in the moment of its next request would look like a fault.
server.keepAliveTimeout = 0;
const sockets = new Set<Socket>();
server.on("connection", (socket: Socket) => {
  sockets.add(socket);
  socket.once("close", () => sockets.delete(socket));
});

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
  await quit();
  tell({ drained: true });
  process.off("disconnect", orphaned);
  process.disconnect();
});

await lock.check();
server.listen(0, "127.0.0.1");
await once(server, "listening");
tell({ port: (server.address() as AddressInfo).port });
