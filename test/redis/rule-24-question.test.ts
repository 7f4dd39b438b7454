import { afterEach, beforeEach, expect, inject, test, vi } from "vitest";
import type { ServerPort } from "../../src/stores/redis/clients/port.ts";
import { portOf } from "../../src/stores/redis/clients/port-of.ts";
import { slotOf } from "../../src/stores/redis/clients/slots.ts";
import { recordWarnings } from "../support/channels.ts";
import { closeClients, ioredis6, untilReady } from "../support/clients.ts";
import { freshUser } from "../support/ids.ts";
import { startMasters } from "../support/masters.ts";
import { observer } from "../support/observer.ts";
import { forTest, type RedisServer, startRedis } from "../support/redis-server.ts";

let given: ReturnType<typeof recordWarnings>;
let askSharing: typeof import("../../src/stores/redis/gathering.ts").askSharing;
beforeEach(async () => {
  // A process warns once.
  vi.resetModules();
  ({ askSharing } = await import("../../src/stores/redis/gathering.ts"));
  given = recordWarnings();
});
afterEach(() => {
  given.restore();
  closeClients();
});

const connected = async (port: number): Promise<ServerPort> =>
  portOf(await untilReady(ioredis6.connect(port)));

/** A port to which {@link askSharing} writes as to the server, but for `eval`. */
const withEval = (server: ServerPort, evaluate: ServerPort["eval"]): ServerPort => ({
  address: server.address,
  connection: server.connection,
  ask: (words) => server.ask(words),
  eval: evaluate,
});

/** Calls `fault` before the call with that index is written, and after the answers before it. */
function withFault(server: ServerPort, index: number, fault: () => Promise<unknown>): ServerPort {
  let calls = 0;
  let before: Promise<unknown> = Promise.resolve();
  return withEval(server, (...args) => {
    const hasFault = calls++ === index;
    const answer = before.then(async () => {
      if (hasFault) await fault();
      return server.eval(...args);
    });
    before = answer;
    return answer;
  });
}

test.each([0, 1, 2, 17, 32])(
  "rule 24: a server that loses its keys before call %i is not taken for several shards",
  async (index) => {
    const server = await forTest(startRedis());
    const { send } = observer(server.port);
    // As a restart does. Before its first call the server has no keys to lose.
    const asked = withFault(await connected(server.port), index, () => send("FLUSHALL"));
    const key = `lock:submit:${freshUser()}`;
    expect(await askSharing(asked, key)).toBe(index === 0 ? "yes" : "no");
    expect(given.calls).toEqual([]);
  },
);

test("rule 24: a server in cluster mode behind a plain client is named in a warning", async () => {
  const [node] = (await startMasters(inject("redisServerBinary"), 1, [])) as [RedisServer];
  await forTest(Promise.resolve(node));
  await expectWarning(await connected(node.port));
});

test("rule 24: two servers behind one address, too", async () => {
  const start = async () => connected((await forTest(startRedis())).port);
  await expectWarning(sharded(await Promise.all([start(), start()])));
});

/** Sends each call to the server of its first key, as twemproxy does. */
function sharded([one, other]: readonly [ServerPort, ServerPort]): ServerPort {
  const serverOf = (key = "") => (slotOf(key) % 2 === 0 ? one : other);
  return withEval(one, (script, call) => serverOf(call.keys[0]).eval(script, call));
}

async function expectWarning(server: ServerPort): Promise<void> {
  expect(await askSharing(server, `lock:submit:${freshUser()}`)).toBe("no");
  const code = "SUBMIT_LOCK_SHARDED_REDIS";
  expect(given.calls).toEqual([
    [expect.stringContaining(server.address), { type: "SubmitLockWarning", code }],
  ]);
}
