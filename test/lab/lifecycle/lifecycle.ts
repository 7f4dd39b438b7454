import { once } from "node:events";
import type { AddressInfo } from "node:net";
import { afterAll, describe, expect, test } from "vitest";
import { RedisStore, SubmitLock } from "../../../src/index.ts";
import type { Framework } from "../../http/frameworks.ts";
import { gate } from "../../http/gate.ts";
import { onAll } from "../../http/once-shop.ts";
import { patientTimes } from "../../http/shop.ts";
import type { AppParts, Turn } from "../../http/turn.ts";
import { closeClients, ioredis6 } from "../../support/clients.ts";
import { freshUser } from "../../support/ids.ts";
import { sharedRedisPort } from "../../support/redis-server.ts";
import { until } from "../../support/until.ts";
import { Random } from "../simulation/time/random.ts";
import { type HandlerName, handlerNames, handlers } from "./handlers.ts";
import { planVisit, type Visit, visit } from "./visits.ts";

interface LifecycleOptions {
  readonly framework: Framework;
  readonly isOnce: boolean;
  readonly seed: number;
  readonly customers: number;
  /** Of each customer. */
  readonly rounds: number;
}

/** What was seen. */
interface LifecycleResult {
  orders: number;
  /** The handlers of orders whose user had another one at work. */
  readonly overlaps: string[];
}

/**
 * Customers whose clients leave, reset, half-close, pipeline and pause at random.
 *
 * @throws when a lock is held although its requests are over.
 */
async function live(options: LifecycleOptions): Promise<LifecycleResult> {
  const { customers, framework, isOnce, rounds, seed } = options;
  const redis = ioredis6.connect(sharedRedisPort());
  const lock = new SubmitLock({ store: new RedisStore(redis), ...patientTimes });
  const result: LifecycleResult = { orders: 0, overlaps: [] };
  /** The orders that are at work, of each user: once for each of its pieces. */
  const atWork = new Map<string, Set<{ readonly order: Turn }>>();

  const begun = new Map<string, () => void>();
  const begin = (user: string, order: Turn) => {
    const pieces = atWork.get(user) ?? new Set();
    for (const other of pieces) {
      if (other.order !== order)
        result.overlaps.push(`${nameOf(order)} during ${nameOf(other.order)}`);
    }
    const piece = { order };
    atWork.set(user, pieces.add(piece));
    return () => void pieces.delete(piece);
  };
  const handler: AppParts["handler"] = async (turn) => {
    const { headers } = turn.req;
    const user = String(headers["x-user"]);
    result.orders++;
    begun.get(user)?.();
    const end = begin(user, turn);
    try {
      const work = handlers[nameOf(turn)];
      const beginStream = () => begin(user, turn);
      await work(turn, Number(headers["x-work-ms"]), beginStream);
    } finally {
      end();
    }
  };
  const server = framework.makeServer({
    lock,
    handler,
    ...(isOnce && {
      guard: { idempotency: { submissionId: ({ headers }) => String(headers["x-key"]) } },
    }),
  });
  server.listen(0, "127.0.0.1");
  await once(server, "listening");
  const { port } = server.address() as AddressInfo;

  const isOver = async (user: string) =>
    (atWork.get(user)?.size ?? 0) === 0 && (await redis.exists(lock.keyFor(user))) === 0;
  const oneCustomer = async (number: number) => {
    const random = new Random(seed + number);
    for (let round = 0; round < rounds; round++) {
      const users = [freshUser(), freshUser()] as const;
      const visits: Visit[] = random
        .pick([[0], [0, 0], [0, 0, 0]])
        .map(() => planVisit(users, handlerNames(framework), random));
      const left: (() => void)[] = [];
      // The next click comes as soon as the client of the one before has left.
      for (const plan of visits) {
        const { opened, open } = gate();
        for (const { user } of plan.orders) begun.set(user, open);
        left.push(await visit(framework.http, port, plan, opened));
      }
      for (const user of users) {
        await until(() => isOver(user), {
          what: `a free lock, ${framework.name}, seed ${seed}, ${JSON.stringify(visits)}`,
        });
      }
      for (const close of left) close();
    }
  };
  try {
    await Promise.all(Array.from({ length: customers }, (_, number) => oneCustomer(number)));
    return result;
  } finally {
    server.close();
    await lock.close({ timeoutMs: 0 });
    redis.disconnect();
  }
}

function nameOf({ req }: Turn): HandlerName {
  return req.headers["x-handler"] as HandlerName;
}

const seed = Number(process.env["LIFECYCLE_SEED"] ?? Math.floor(Math.random() * 2 ** 32));
const ways = onAll.flatMap((framework) =>
  [false, true].map((isOnce) => ({
    framework,
    isOnce,
    name: `${framework.name}, ${isOnce ? "with idempotency" : "the lock alone"}`,
  })),
);

/** The suite of the random lifecycle, with so many visits for each framework and guard. */
export function lifecycleSuite(size: Pick<LifecycleOptions, "customers" | "rounds">): void {
  afterAll(closeClients);
  describe(`P1 and P5: clients that come and leave at random, LIFECYCLE_SEED=${seed}`, () => {
    test.concurrent.each(ways)("leave no lock and no second holder: $name", async (way) => {
      const { orders, overlaps } = await live({ ...way, seed, ...size });
      expect(overlaps).toEqual([]);
      expect(orders).toBeGreaterThan(0);
    });
  });
}
