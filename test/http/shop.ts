import { subscribe, unsubscribe } from "node:diagnostics_channel";
import { once } from "node:events";
import type { Server } from "node:http";
import type { Http2Server, Http2Session } from "node:http2";
import { PassThrough } from "node:stream";
import { setTimeout as sleep } from "node:timers/promises";
import { Redis } from "ioredis";
import { expect, onTestFinished } from "vitest";
import {
  type AcquireMessage,
  type LostMessage,
  RedisStore,
  type ReleaseMessage,
  SubmitLock,
  type SubmitLockOptions,
} from "../../src/index.ts";
import { type AnyRedis, closeClients } from "../support/clients.ts";
import { freshUser } from "../support/ids.ts";
import { sharedRedisPort } from "../support/redis-server.ts";
import { until } from "../support/until.ts";
import type { Framework } from "./frameworks.ts";
import { gate } from "./gate.ts";
import {
  type Call,
  type HttpClient,
  listen,
  openClient,
  type Reply,
  type Submit,
} from "./http-client.ts";
import type { AppParts, Turn } from "./turn.ts";

/** The work of one order, as the handler of a test reports it. */
export interface OrderWork {
  /** The last thing the work does: looks whether the lock is still ours. */
  over(): Promise<void>;
  /** The same for a handler that cannot wait. */
  overNow(): void;
}

export interface ShopOptions extends Omit<AppParts, "lock" | "handler"> {
  framework: Framework;
  handler: (turn: Turn, work: OrderWork) => unknown;
  /** The same shop without the lock. */
  bare?: boolean;
  /** @defaultValue {@link patientTimes} */
  times?: Partial<Omit<SubmitLockOptions, "store">>;
  /** How the lock gets to Redis. Directly to the shared server unless given. */
  redis?: AnyRedis;
}

const connections = new Map<string, Redis>();

/** One connection for all shops of the process: to connect costs as much as an order. */
export function sharedRedis(whose: "the locks'" | "the tests'" = "the locks'"): Redis {
  const shared = connections.get(whose) ?? new Redis(sharedRedisPort(), "127.0.0.1");
  connections.set(whose, shared);
  return shared;
}

/**
 * So long that a busy machine is not taken for a silent Redis, and that a key which is gone was
 * released.
 */
export const patientTimes = {
  ttlMs: 60_000,
  maxHoldMs: 120_000,
  acquireTimeoutMs: 10_000,
  commandTimeoutMs: 5_000,
};

/** Short enough to wait for, long enough for a busy machine. */
export const shortTimes = {
  ttlMs: 2_000,
  maxHoldMs: 2_400,
  acquireTimeoutMs: 1_000,
  commandTimeoutMs: 500,
};

const open = new Set<Shop>();

async function closeShops(): Promise<void> {
  await Promise.all([...open].map((shop) => shop.close()));
  open.clear();
  closeClients();
}

/** A shop that is closed with its connections when the test is over. */
export async function openShop(options: ShopOptions): Promise<Shop> {
  const shop = new Shop(options);
  if (open.size === 0) onTestFinished(closeShops);
  open.add(shop);
  await shop.listen();
  return shop;
}

/**
 * Plays the script on the shop without the lock and on the shop with it, and expects the same
 * answers. Gives the shop with the lock.
 */
export async function sameWithoutLock(
  options: ShopOptions,
  script: (shop: Shop) => Promise<unknown>,
): Promise<Shop> {
  const bare = await openShop({ ...options, bare: true });
  const expected = await script(bare);
  const shop = await openShop(options);
  expect(await script(shop)).toEqual(expected);
  return shop;
}

/** What a handler of {@link clicksAgain} says, and waits for. */
export interface Moments {
  readonly started: () => void;
  readonly goOn: Promise<void>;
}

type LeavingOptions = Omit<ShopOptions, "handler"> &
  Pick<Submit, "headers"> & {
    handler: (turn: Turn, work: OrderWork, moments: Moments) => unknown;
  };

/** {@link clicksAgain}, and then both orders are over. */
export async function leavesAndRetries(options: LeavingOptions): Promise<Shop> {
  const shop = await clicksAgain(options);
  await shop.isOverAfter(2);
  return shop;
}

/**
 * A client leaves when its order has started, and clicks again. The second order waits until the
 * first one, which then may go on, is over.
 */
export async function clicksAgain({ handler, headers, ...options }: LeavingOptions): Promise<Shop> {
  const [started, left, goOn] = [gate(), gate(), gate()];
  const shop = await openShop({
    ...options,
    handler: (turn, work) => {
      turn.res.once("close", left.open);
      return handler(turn, work, { started: started.open, goOn: goOn.opened });
    },
  });
  const call = shop.submit({ ...(headers && { headers }) });
  await started.opened;
  call.abort();
  const retry = shop.rival();
  await left.opened;
  // Time for the retry to come in several times.
  await sleep(50);
  expect(shop.work.started).toBe(1);
  goOn.open();
  expect((await retry).status).toBe(201);
  return shop;
}

/** A client leaves while it receives an answer that the handler has done its part of. */
export async function leavesInTheMiddle(
  options: ShopOptions,
  headers: Record<string, string> = {},
): Promise<void> {
  const shop = await openShop(options);
  const call = shop.submit({ headers });
  await call.begun;
  expect(await shop.owner()).not.toBeNull();
  call.abort();
  expect((await shop.rival()).status).toBe(201);
  await shop.isOverAfter(2);
}

/** Whether the user's lock is free; it is not kept. */
export async function canAcquire(lock: SubmitLock, user: string): Promise<boolean> {
  const attempt = await lock.acquire(user);
  if (attempt.outcome === "acquired") await attempt.lease.release();
  return attempt.outcome === "acquired";
}

/** The middle of a stream: some of it has been sent, and more is to come. */
export function endless(): PassThrough {
  const stream = new PassThrough();
  stream.on("error", () => {});
  stream.write("the first part");
  return stream;
}

/** One user's shop: an application on a framework, its clients, and what is to be seen of it. */
export class Shop {
  readonly user: string = freshUser();
  readonly key: string = `lock:submit:${this.user}`;
  readonly work: WorkObserver = new WorkObserver();
  readonly errors: unknown[] = [];
  readonly lock: SubmitLock;
  readonly published: LockObserver = new LockObserver(this.key);
  /** Whether the lock was ours at the end of each order's work. */
  readonly heldAtEnd: boolean[] = [];
  readonly framework: Framework;
  port = 0;
  readonly #server: Server | Http2Server;
  readonly #sessions = new Set<Http2Session>();
  readonly #clients: HttpClient[] = [];
  /** Sees the keys, and is not the lock's. */
  readonly redis: Redis = sharedRedis("the tests'");

  constructor(options: ShopOptions) {
    const { framework, handler, bare, times, redis = sharedRedis(), ...parts } = options;
    this.framework = framework;
    this.lock = new SubmitLock({ store: new RedisStore(redis), ...patientTimes, ...times });
    this.#server = framework.makeServer({
      onError: (error) => this.errors.push(error),
      ...parts,
      lock: bare ? undefined : this.lock,
      handler: (turn) =>
        turn.req.headers["x-rival"] ? this.#rivalOrder(turn) : handler(turn, this.#begin(turn)),
    });
    this.#server.on("session", (session) => this.#sessions.add(session as Http2Session));
  }

  async listen(): Promise<void> {
    this.port = await listen(this.#server);
  }

  /** A client with a connection of its own. */
  client(): HttpClient {
    const client = openClient(this.framework.http, this.port);
    this.#clients.push(client);
    return client;
  }

  submit({ headers, ...submit }: Submit = {}): Call {
    return this.client().call({ ...submit, headers: { "x-user": this.user, ...headers } });
  }

  /** Another click of the same user, again and again until it gets through. */
  async rival(): Promise<Reply> {
    const client = this.client();
    const headers = { "x-user": this.user, "x-rival": "1" };
    for (;;) {
      const reply = await client.call({ headers }).reply;
      // A busy machine may take longer to ask Redis than a lock with short times allows.
      if (reply.status !== 409 && reply.status !== 503) return reply;
      await sleep(10);
    }
  }

  /** The owner id that the key begins with. */
  async owner(): Promise<string | null> {
    const value = await this.redis.get(this.key);
    return value === null ? null : value.slice(0, 36);
  }

  async keyIsGone(): Promise<void> {
    await until(async () => (await this.owner()) === null, { what: "the key to be gone" });
  }

  /**
   * What every scenario ends with: so many leases, each released once, none while its work went on,
   * no two handlers at a time, and no key left.
   */
  async isOverAfter(leases: number): Promise<void> {
    const { published, work } = this;
    await until(() => published.releases.length >= leases, { what: `${leases} releases` });
    await this.keyIsGone();
    // What comes twice comes a moment later.
    await sleep(20);
    expect(published.acquired).toHaveLength(leases);
    expect(published.releases.map(({ outcome }) => outcome)).toEqual(
      Array.from({ length: leases }, () => "released"),
    );
    expect(this.heldAtEnd).not.toContain(false);
    expect(work).toMatchObject({ running: 0, overlaps: 0 });
  }

  async close(): Promise<void> {
    this.published.stop();
    for (const client of this.#clients) client.close();
    for (const session of this.#sessions) session.destroy();
    if ("closeAllConnections" in this.#server) this.#server.closeAllConnections();
    const closed = once(this.#server, "close");
    this.#server.close();
    await Promise.all([closed, this.lock.close({ timeoutMs: 0 })]);
  }

  #begin(turn: Turn): OrderWork {
    const end = this.work.begin();
    const { lease } = turn;
    return {
      over: async () => {
        if (lease !== undefined) this.heldAtEnd.push((await this.owner()) === lease.ownerId);
        end();
      },
      overNow: end,
    };
  }

  async #rivalOrder(turn: Turn): Promise<void> {
    const end = this.work.begin();
    await sleep(1);
    end();
    turn.answer(201, { order: "of the rival" });
  }
}

/** Notes what the lock publishes about one key. */
class LockObserver {
  readonly acquired: AcquireMessage[] = [];
  readonly contended: AcquireMessage[] = [];
  readonly releases: ReleaseMessage[] = [];
  readonly lost: LostMessage[] = [];
  readonly stop: () => void;

  constructor(keyStart: string) {
    const of = <M extends { key: string }>(to: M[], wanted = (_message: M) => true) => {
      return (message: unknown) => {
        const published = message as M;
        if (published.key.startsWith(keyStart) && wanted(published)) to.push(published);
      };
    };
    const listeners = {
      "submit-lock:acquire": (message: unknown) => {
        of(this.acquired, ({ outcome }) => outcome === "acquired")(message);
        of(this.contended, ({ outcome }) => outcome === "contended")(message);
      },
      "submit-lock:release": of(this.releases),
      "submit-lock:lost": of(this.lost),
    };
    for (const [name, listener] of Object.entries(listeners)) subscribe(name, listener);
    this.stop = () => {
      for (const [name, listener] of Object.entries(listeners)) unsubscribe(name, listener);
    };
  }
}

/** Counts the handlers of one user that run, and notices when two run at once. */
class WorkObserver {
  running = 0;
  started = 0;
  overlaps = 0;

  begin(): () => void {
    this.started++;
    this.running++;
    if (this.running > 1) this.overlaps++;
    let over = false;
    return () => {
      if (!over) this.running--;
      over = true;
    };
  }
}
