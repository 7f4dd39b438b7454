import { createHash, randomUUID } from "node:crypto";
import { Cluster, type Redis } from "ioredis";
import { acquireScript } from "../src/stores/redis/commands/acquire.ts";
import { releaseScript } from "../src/stores/redis/commands/release.ts";
import { type Client, type Locker, notTaken, ttlMs } from "./locker.ts";

interface Hold {
  readonly key: string;
  readonly ownerId: string;
}

const acquireTimeoutMs = 1_000;
const maxHoldMs = 60_000;
/** What the key holds behind the owner id and the fencing token. */
const valueTail = `${ttlMs}:${maxHoldMs}:web-3%3A4711::`;

const digestOf = (script: string): string => createHash("sha1").update(script).digest("hex");
const acquireDigest = digestOf(acquireScript);
const releaseDigest = digestOf(releaseScript);

/** On a single server, what is called behind this finds the scripts, also where nobody waits for it. */
export async function loadScripts(client: Client): Promise<void> {
  await Promise.all(
    mastersOf(client).map((redis) =>
      Promise.all([redis.script("LOAD", acquireScript), redis.script("LOAD", releaseScript)]),
    ),
  );
}

function mastersOf(client: Client): Redis[] {
  return client instanceof Cluster ? client.nodes("master") : [client];
}

/** What submit-lock sends for one lock, and nothing around it: no library on these scripts is faster. */
export function openScriptsAlone(redis: Client): Locker<Hold> {
  return {
    async acquire(user) {
      const key = `lock:submit:${user}`;
      const ownerId = randomUUID();
      const deadlineMs = Date.now() + acquireTimeoutMs;
      const args = [deadlineMs, 2 * acquireTimeoutMs, maxHoldMs, ttlMs, 0, valueTail, ownerId];
      const reply = (await redis.evalsha(acquireDigest, 1, key, ...args)) as number[];
      if (reply[2] !== -1) throw notTaken(user);
      return { key, ownerId };
    },
    release: ({ key, ownerId }) => redis.evalsha(releaseDigest, 1, key, ownerId, 0),
  };
}

/** The same, where everything that one turn of the event loop writes to a master leaves in one piece. */
export function openScriptsCorked(client: Client): Locker<Hold> {
  const alone = openScriptsAlone(client);
  let underWay = 0;
  let corked: Redis["stream"][] = [];
  const uncork = (): void => {
    for (const stream of corked) stream.uncork();
    corked = [];
  };
  const written = async <Reply>(write: () => Promise<Reply>): Promise<Reply> => {
    if (corked.length === 0) {
      corked = mastersOf(client).flatMap(({ stream }) => (stream ? [stream] : []));
      for (const stream of corked) stream.cork();
      // A lone call has nothing to wait for.
      if (underWay === 0) process.nextTick(uncork);
      else setImmediate(uncork);
    }
    underWay++;
    try {
      return await write();
    } finally {
      underWay--;
    }
  };
  return {
    acquire: (user) => written(() => alone.acquire(user)),
    release: (hold) => written(() => alone.release(hold)),
  };
}
