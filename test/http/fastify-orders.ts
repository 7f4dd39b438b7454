import Fastify, {
  type FastifyInstance,
  type FastifyServerOptions,
  type InjectOptions,
  type LightMyRequestResponse,
  type RouteHandlerMethod,
  type RouteShorthandOptions,
} from "fastify";
import { onTestFinished } from "vitest";
import { type SubmitGuardOptions, submitGuard } from "../../src/fastify/index.ts";
import { RedisStore, SubmitLock, type SubmitLockOptions } from "../../src/index.ts";
import { freshUser } from "../support/ids.ts";
import { until } from "../support/until.ts";
import { canAcquire, patientTimes, sharedRedis } from "./shop.ts";

export interface OrderOptions {
  guard?: Partial<SubmitGuardOptions>;
  app?: FastifyServerOptions;
  times?: Partial<Omit<SubmitLockOptions, "store">>;
  /** The same routes without a guard. */
  bare?: boolean;
}

/** An application of Fastify whose orders one user submits, without a socket. */
export function openOrders({ guard: ofGuard, app: ofApp, times, bare }: OrderOptions = {}) {
  const user = freshUser();
  const redis = sharedRedis("the tests'");
  const store = new RedisStore(sharedRedis());
  const lock = new SubmitLock({ store, ...patientTimes, ...times });
  const app: FastifyInstance = Fastify(ofApp ?? {});
  const close = async () => {
    await app.close();
    await lock.close({ timeoutMs: 0 });
  };
  const userId: SubmitGuardOptions["userId"] = ({ headers }) => headers["x-user"]?.toString();
  const guard = submitGuard({ lock, userId, idempotency: {}, ...ofGuard });
  const protect = <Handler extends RouteHandlerMethod>(handler: Handler) =>
    bare ? handler : guard.protect(handler);
  const headers = { "x-user": user, "idempotency-key": "a-key" };
  const submit = ({ headers: more, ...rest }: InjectOptions = {}) =>
    app.inject({
      method: "POST",
      url: "/orders",
      headers: { ...headers, ...more },
      payload: { cart: 7 },
      ...rest,
    });
  const whenFree = () => until(() => canAcquire(lock, user), { what: "a free lock" });
  return {
    app,
    close,
    guard,
    headers,
    lock,
    protect,
    submit,
    user,
    whenFree,
    isFree: () => canAcquire(lock, user),
    place: (handler: RouteHandlerMethod, route: RouteShorthandOptions = {}) =>
      app.post("/orders", route, protect(handler)),
    /** The text of everything of the user's in Redis. */
    async records(): Promise<string[]> {
      const keys = (await redis.keys(`*${user}*`)).filter((key) => !key.endsWith(":told"));
      return (await Promise.all(keys.map((key) => redis.get(key)))) as string[];
    },
    /** The answer, and what its retry gets. */
    async twice() {
      const first = await submit();
      await whenFree();
      return [first, await submit()] as const;
    },
  };
}

/** {@link openOrders}, closed when the test is over. */
export function openOrdersForTest(options: OrderOptions = {}): ReturnType<typeof openOrders> {
  const orders = openOrders(options);
  onTestFinished(orders.close);
  return orders;
}

/** What a client compares: all but the time, the connection and the mark of a repeat. */
export function seenByClient({ statusCode, headers, rawPayload }: LightMyRequestResponse) {
  const { date: _, connection: __, "idempotent-replayed": ___, ...compared } = headers;
  return { statusCode, headers: compared, body: rawPayload.toString("latin1") };
}
