import { createHash, randomUUID } from "node:crypto";
import { Cluster, Redis } from "ioredis";
import { createClient } from "redis";
import type { Lease, RedisStoreOptions } from "submit-lock";
import { type Measures, ProcessorTime, packageAt, pin, Samples, serve } from "./worker.ts";

/** One lock on one client, in a process of its own. */
export interface PairSetup {
  /** The folder whose `dist` is the package; without it the lock is what one writes by hand. */
  readonly tree?: string;
  readonly client: "ioredis" | "node-redis" | "ioredis Cluster";
  readonly ports: readonly number[];
  readonly options?: RedisStoreOptions;
}

/** Acquire and release, this many callers at once, each pair for another user. */
export interface PairJob {
  readonly callers: number;
  readonly seconds: number;
}

interface Hold {
  readonly key: string;
  readonly ownerId: string;
}

interface Locker {
  acquire(user: string): Promise<Lease | Hold>;
  release(hold: Lease | Hold): Promise<unknown>;
}

const ttlMs = 10_000;
const deleteIfMine =
  'if redis.call("GET", KEYS[1]) == ARGV[1] then return redis.call("DEL", KEYS[1]) end return 0';
const digest = createHash("sha1").update(deleteIfMine).digest("hex");

const setup = JSON.parse(process.argv[2] as string) as PairSetup;
const { client, options = {}, ports, tree } = setup;
pin(0);
const locker = await open();
const processor = new ProcessorTime();
let users = 0;
// Without a colon: it would take the slow path of the encoding.
const nextUser = () => `${process.pid}-${users++ % 1_000_000}`;
await locker.release(await locker.acquire(nextUser()));
serve<PairJob>(pairs);

async function open(): Promise<Locker> {
  const [port = 0] = ports;
  if (client === "node-redis") {
    const redis = await createClient({ url: `redis://127.0.0.1:${port}` })
      .on("error", () => {})
      .connect();
    await redis.scriptLoad(deleteIfMine);
    return await lockerOf(redis, {
      set: (key, id) =>
        redis.set(key, id, { condition: "NX", expiration: { type: "PX", value: ttlMs } }),
      delete: (key, id) => redis.evalSha(digest, { keys: [key], arguments: [id] }),
    });
  }
  const redis =
    client === "ioredis"
      ? new Redis(port, "127.0.0.1")
      : new Cluster(ports.map((each) => ({ host: "127.0.0.1", port: each })));
  await redis.ping();
  redis.defineCommand("deleteIfMine", { numberOfKeys: 1, lua: deleteIfMine });
  return await lockerOf(redis, {
    set: (key, id) => redis.set(key, id, "PX", ttlMs, "NX"),
    delete: (key, id) =>
      (redis as unknown as { deleteIfMine: typeof Reflect.get }).deleteIfMine(Object(key), id),
  });
}

interface Commands {
  set(key: string, ownerId: string): Promise<string | null>;
  delete(key: string, ownerId: string): Promise<unknown>;
}

/** The package's lock, or what one writes without it. */
async function lockerOf(redis: never | object, commands: Commands): Promise<Locker> {
  if (tree !== undefined) {
    const { RedisStore, SubmitLock } = await packageAt<typeof import("submit-lock")>(tree);
    const lock = new SubmitLock({ store: new RedisStore(redis as Redis, options), ttlMs });
    return {
      async acquire(user) {
        const attempt = await lock.acquire(user);
        if (attempt.outcome === "acquired") return attempt.lease;
        throw new Error(attempt.outcome);
      },
      release: (lease) => (lease as Lease).release(),
    };
  }
  return {
    async acquire(user) {
      const hold = { key: `lock:submit:${user}`, ownerId: randomUUID() };
      if ((await commands.set(hold.key, hold.ownerId)) === "OK") return hold;
      throw new Error("not taken");
    },
    release: (hold) => commands.delete((hold as Hold).key, (hold as Hold).ownerId),
  };
}

async function pairs({ callers, seconds }: PairJob): Promise<Measures> {
  const [whole, acquires] = [new Samples(), new Samples()];
  let done = 0;
  processor.take();
  const start = performance.now();
  const end = start + seconds * 1_000;
  async function caller(): Promise<void> {
    for (let from = performance.now(); from < end; done++) {
      const hold = await locker.acquire(nextUser());
      acquires.add(performance.now() - from);
      await locker.release(hold);
      whole.add(performance.now() - from);
      from = performance.now();
    }
  }
  await Promise.all(Array.from({ length: callers }, caller));
  return {
    "a second": (done / (performance.now() - start)) * 1_000,
    "processor µs": processor.take() / done,
    "p50 ms": whole.percentile(50),
    "acquire p50 ms": acquires.percentile(50),
    count: done,
  };
}
