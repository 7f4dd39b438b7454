import type { Server, ServerResponse } from "node:http";
import type { Http2Server, Http2ServerResponse } from "node:http2";
import { afterEach, describe, expect, test } from "vitest";
import { RedisStore } from "../../src/index.ts";
import { Child } from "../support/child.ts";
import { compiled } from "../support/compiled.ts";
import { freshUser } from "../support/ids.ts";
import { closeLocks, openLock } from "../support/locks.ts";
import { sharedRedisPort } from "../support/redis-server.ts";
import { until } from "../support/until.ts";
import { allSeeing, type Framework, newest, writesByHand } from "./frameworks.ts";
import { listen, openClient } from "./http-client.ts";
import { orderKey } from "./once-shop.ts";
import { patientTimes, sharedRedis } from "./shop.ts";
import type { AppParts, Turn } from "./turn.ts";

const closing: (() => unknown)[] = [];
afterEach(async () => {
  for (const close of closing.splice(0).reverse()) await close();
  await closeLocks();
});

type Server1Or2 = Server | Http2Server;
type Act = (turn: Turn, server: Server1Or2) => unknown;

const placed = "placed".repeat(1_000);

function end(res: ServerResponse): void {
  res.statusCode = 201;
  res.end(placed);
}

/** What a handler may do in the turn in which it has ended its response. */
const behindTheEnd: readonly [act: string, does: Act][] = [
  ["req.destroy()", ({ req }) => req.destroy()],
  ["req.socket.destroy()", ({ req }) => req.socket.destroy()],
  ["res.socket.end()", ({ res }) => res.socket?.end()],
  ["res.socket.destroySoon()", ({ res }) => res.socket?.destroySoon()],
  ["res.destroy()", ({ res }) => res.destroy()],
  ["server.close()", (_turn, server) => server.close()],
  [
    "server.closeAllConnections()",
    (_turn, server) => "closeAllConnections" in server && server.closeAllConnections(),
  ],
  ["session.close()", ({ res }) => sessionOf(res)?.close()],
  ["a throw", ({ fail }) => fail(new Error("too late"))],
];

function sessionOf(res: unknown) {
  return (res as Partial<Http2ServerResponse>).stream?.session;
}

type Guard = NonNullable<AppParts["guard"]>;

/** What a client gets of an answer behind whose end the handler acts. */
async function answered(framework: Framework, guard: Guard | undefined, act: Act): Promise<string> {
  const user = freshUser();
  const store = new RedisStore(sharedRedis());
  const lock = guard && openLock({ store, ...patientTimes });
  const server = framework.makeServer({
    lock,
    ...(guard && { guard }),
    handler: (turn) => {
      end(turn.byHand());
      act(turn, server);
    },
  });
  const port = await listen(server);
  closing.push(() => server.close());
  const client = openClient(framework.http, port);
  closing.push(() => client.close());
  const told = await client
    .call({ headers: { "x-user": user, "idempotency-key": orderKey } })
    .reply.then(
      ({ body, status }) => `${status} ${body}`,
      () => "nothing",
    );
  // A cooldown keeps the user's key for a while, and it is no longer the lease's.
  if (lock !== undefined && guard?.cooldownMs === undefined) {
    const isFree = async () => (await sharedRedis().exists(lock.keyFor(user))) === 0;
    await until(isFree, { what: "the lock to be free" });
  }
  return told;
}

const guards: readonly [what: string, guard: Guard][] = [
  ["the lock alone", {}],
  ["idempotency", { idempotency: {} }],
  ["cooldownMs", { cooldownMs: 5_000 }],
];

describe.each(allSeeing.filter(writesByHand))(
  "P8: an answer that is ended, on $name",
  (framework) => {
    test.each(behindTheEnd)(
      "is as whole as without a guard where the handler goes on with %s",
      async (_act, does) => {
        const bare = await answered(framework, undefined, does);
        // A stream of HTTP/2 that is reset takes its answer with it, guard or not.
        if (framework.http === 1) expect(bare).toBe(`201 ${placed}`);
        for (const [what, guard] of guards) {
          expect([what, await answered(framework, guard, does)]).toEqual([what, bare]);
        }
      },
    );
  },
);

describe.each(newest.filter(writesByHand))(
  "P8: an answer that is ended, on $name",
  ({ http, name }) => {
    test.each(["exit", "abort"])(
      "is whole where the handler goes on with process.%s()",
      async (how) => {
        const file = new URL("./shop-process.ts", import.meta.url);
        const child = new Child<{ port: number }>(await compiled({ file }), [
          name,
          `${sharedRedisPort()}`,
        ]);
        closing.push(() => child.signal("SIGKILL"));
        const { port } = await child.next();
        const client = openClient(http, port);
        closing.push(() => client.close());
        const headers = { "x-user": freshUser(), "idempotency-key": orderKey, "x-ends": how };
        expect((await client.call({ headers }).reply).body).toBe(placed);
      },
    );
  },
);
