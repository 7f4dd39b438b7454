import { readdirSync, statSync, truncateSync } from "node:fs";
import { join } from "node:path";
import { Redis } from "ioredis";
import { serverBinary } from "../../support/server-binary.ts";
import { type RedisServer, startServer } from "../../support/server-process.ts";
import { now } from "../shop/protocol.ts";

/** When the append-only file is written to the disk; `no`: there is none. */
export type Fsync = "no" | "everysec" | "always";

/** A server, and an observer of it. */
export interface Durable {
  readonly server: RedisServer;
  readonly redis: Redis;
  /** The numbers of INFO; none where the server is away. */
  info(): Promise<Readonly<Record<string, number>>>;
  stop(): Promise<void>;
}

/** What the manual wants. */
export const settingsOf = (fsync: Fsync): string[] =>
  fsync === "no"
    ? ["--maxmemory-policy", "noeviction"]
    : ["--maxmemory-policy", "noeviction", "--appendonly", "yes", "--appendfsync", fsync];

export async function startDurable(
  fsync: Fsync = "everysec",
  args: readonly string[] = [],
): Promise<Durable> {
  return observed(await startServer(serverBinary(), { args: [...settingsOf(fsync), ...args] }));
}

export function observed(server: RedisServer): Durable {
  const redis = new Redis(server.port, "127.0.0.1", { retryStrategy: () => 50 });
  redis.on("error", () => {});
  return {
    server,
    redis,
    async info() {
      const text = await redis.info("everything").catch(() => "");
      const fields = text.matchAll(/^(\w+):([\d.]+)\r/gm);
      return Object.fromEntries([...fields].map(([, name, value]) => [name, Number(value)]));
    },
    async stop() {
      redis.disconnect();
      await server.stop();
    },
  };
}

/**
 * A machine that dies takes with it what was not on the disk; a process that dies does not. So its
 * file is looked at all the time, and cut to what it was.
 *
 * @returns cuts it, when the server is dead, to what it was then; how many bytes are gone.
 */
export async function watchFile({ redis }: Durable): Promise<(at: number) => number> {
  // A file that is replaced could not be cut.
  await redis.config("SET", "auto-aof-rewrite-percentage", 0);
  const [, dir = ""] = (await redis.config("GET", "dir")) as string[];
  const folder = join(dir, "appendonlydir");
  const path = join(folder, readdirSync(folder).find((name) => name.endsWith(".incr.aof")) ?? "");
  const seen: { readonly at: number; readonly bytes: number }[] = [];
  const timer = setInterval(() => seen.push({ at: now(), bytes: statSync(path).size }), 10);
  redis.once("close", () => clearInterval(timer));
  return (at) => {
    const then = seen.findLast((each) => each.at <= at)?.bytes ?? 0;
    const lost = statSync(path).size - then;
    truncateSync(path, then);
    return lost;
  };
}
