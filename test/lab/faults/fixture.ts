import { setTimeout as sleep } from "node:timers/promises";
import { type AnyRedis, closeClient, untilReady } from "../../support/clients.ts";
import { freshUser } from "../../support/ids.ts";
import { startProxy } from "../../support/proxy.ts";
import type { LabClient } from "./clients.ts";
import type { Fault, FaultTarget } from "./fault.ts";
import { type Contender, callBoundMs, type Library, settled } from "./libraries.ts";
import { Observer } from "./observer.ts";

/** Everything that a cell needs, connected and warm. */
export type Fixture = Awaited<ReturnType<typeof openFixture>>;

export async function openFixture(
  server: FaultTarget["server"],
  { library, client, fault }: { library: Library; client: LabClient; fault: Fault },
) {
  const closing: (() => unknown)[] = [];
  const close = async (): Promise<void> => {
    for (const end of closing.reverse()) await end();
  };
  const user = freshUser();
  const pending: Promise<unknown>[] = [];
  let struck = true;
  const connect = async (port: number, login: Fault["login"]): Promise<AnyRedis> => {
    const redis = client.connect(port, login);
    closing.push(() => closeClient(redis));
    return await untilReady(redis);
  };
  const warm = async (contender: Contender): Promise<Contender> => {
    closing.push(() => settled(contender.close(), callBoundMs));
    await warmUp(contender);
    return contender;
  };
  try {
    const proxy = await startProxy(server.port);
    closing.push(() => proxy.stop());
    const target: FaultTarget = {
      proxy,
      server,
      isOurs: (argv) => argv.some((argument) => argument.includes(user)),
      whenStruck(happened) {
        struck = false;
        void happened.then(() => {
          struck = true;
        });
      },
      later(ms, what) {
        pending.push(sleep(ms).then(what));
      },
    };
    await fault.prepare?.(target);
    const { db = 0 } = fault;
    const redis = await connect(proxy.port, { ...fault.login, db });
    const rivalRedis = await connect(server.port, { db });
    const recordKey = library.recordKeyOf?.(user, client.keyPrefix);
    const key = client.keyPrefix + library.keyOf(user);
    const observer = new Observer({ port: server.port, db }, key, recordKey);
    closing.push(() => observer.stop());
    await observer.start();
    const caller = await warm(library.open(redis));
    const rival = await warm((library.openRival ?? library.open)(rivalRedis));
    return {
      user,
      target,
      caller,
      /** On a healthy connection of its own. */
      rival,
      observer,
      /** Whether the command that the fault waits for came by. */
      get struck() {
        return struck;
      },
      /** Resolves when everything that the fault does later has been done. */
      over: () => Promise.all(pending),
      close,
    };
  } catch (error) {
    await close();
    throw error;
  }
}

/**
 * An application has placed orders before: scripts are loaded, clocks are known. On a busy machine a
 * client's own time bound may end the first try.
 */
async function warmUp(contender: Contender): Promise<void> {
  for (let left = 5; left > 0; left--) {
    const answer = await settled(contender.acquire(freshUser()), callBoundMs);
    if (answer.kind !== "fulfilled" || answer.value.outcome !== "acquired") continue;
    if ((await settled(answer.value.hold.release(), callBoundMs)).kind === "fulfilled") return;
  }
  throw new Error("Without a fault the lock could not be acquired and released.");
}
