import { serverBinary } from "../../test/support/server-binary.ts";
import { startServer } from "../../test/support/server-process.ts";

/** The Redis of the page. */
export interface FoundRedis {
  /** `undefined`: there is none, and the locks are kept in memory. */
  readonly url: string | undefined;
  /** Only of one that was started here. */
  readonly stop?: () => Promise<void>;
}

/** `REDIS_URL`, else a `redis-server` that is installed and that is started now, else none. */
export async function findRedis(): Promise<FoundRedis> {
  const url = process.env["REDIS_URL"];
  if (url !== undefined && url !== "") return { url };
  const binary = installed();
  if (binary === undefined) return { url: undefined };
  const server = await startServer(binary);
  return { url: server.url, stop: () => server.stop() };
}

function installed(): string | undefined {
  try {
    return serverBinary(process.env, () => {});
  } catch {
    return undefined;
  }
}
