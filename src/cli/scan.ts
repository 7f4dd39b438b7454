import { setTimeout as sleep } from "node:timers/promises";
import type { Cluster, Redis } from "ioredis";
import { answerOf, type Client, type Connection } from "./connect.ts";
import { UsageError } from "./failure.ts";

/** What was found, and whether all of it was. */
export interface Scanned {
  /** The keys without the prefix of the client, each once. */
  readonly keys: readonly string[];
  /** About how many keys Redis has looked at. */
  readonly looked: number;
  /** How many there are, of all prefixes; `undefined` where DBSIZE is not permitted. */
  readonly total: number | undefined;
  readonly isComplete: boolean;
  readonly tookMs: number;
}

/** Redis serves nobody else while it looks at one batch; of 1 000 of 812 000 keys, 0.8 ms were measured. */
const batch = 500;

/** What everybody else is left between two batches. */
const pauseMs = 5;

/** More than a person can use, and little enough for the memory of a shell. */
const mostKeys = 100_000;

/**
 * The keys of one prefix, on every master of a Cluster, until all were seen or the budget is used up.
 *
 * @param progress called after each batch with the number of keys that were looked at.
 */
export async function scan(
  connection: Connection,
  client: Client,
  keyPrefix: string,
  budgetMs: number,
  progress: (looked: number) => void,
): Promise<Scanned> {
  const { clientPrefix } = connection;
  const startedAt = performance.now();
  const keys = new Set<string>();
  const pattern = `${escaped(clientPrefix + keyPrefix)}*`;
  const total = await countKeys(connection, client);
  let looked = 0;
  let isComplete = true;
  for (const node of mastersOf(client)) {
    let cursor = "0";
    do {
      if (performance.now() - startedAt > budgetMs || keys.size >= mostKeys) {
        isComplete = false;
        break;
      }
      if (looked > 0) await sleep(pauseMs);
      const asked = node.scan(cursor, "MATCH", pattern, "COUNT", batch);
      const [next, found] = await answerOf(connection, asked);
      // A Cluster's slots are moved, and SCAN repeats itself: a Set.
      for (const key of found) keys.add(key.slice(clientPrefix.length));
      looked = Math.min(looked + batch, total ?? Number.POSITIVE_INFINITY);
      progress(looked);
      cursor = next;
    } while (cursor !== "0");
  }
  const tookMs = performance.now() - startedAt;
  // COUNT is only about how many keys a batch looks at.
  if (isComplete && total !== undefined) looked = total;
  return { keys: [...keys], looked, total, isComplete, tookMs };
}

async function countKeys(connection: Connection, client: Client): Promise<number | undefined> {
  const sizes = await Promise.all(
    mastersOf(client).map((node) => answerOf(connection, node.dbsize()).catch(() => undefined)),
  );
  return sizes.reduce<number | undefined>(
    (sum, size) => (sum === undefined || size === undefined ? undefined : sum + Number(size)),
    0,
  );
}

/** Each server that has keys of its own. */
export function mastersOf(client: Client): readonly Redis[] {
  return isCluster(client) ? client.nodes("master") : [client];
}

function isCluster(client: Client): client is Cluster {
  return client.isCluster;
}

/** Of a pattern of Redis: so that a prefix stands for itself. */
function escaped(text: string): string {
  return text.replace(/[*?[\]\\^]/g, "\\$&");
}

/** The user of a key, which is percent-encoded in it; `undefined` for a key that no user has. */
export function userOf(keyPrefix: string, key: string): string | undefined {
  const encoded = key.slice(keyPrefix.length);
  // A record stands beside its lock where the client's prefix has a hash tag.
  if (encoded === "" || encoded.includes(":")) return undefined;
  try {
    return decodeURIComponent(encoded);
  } catch {
    return undefined;
  }
}

/** Some commands need more of a Redis than a lock does. */
export function clientOf({ client }: Connection, command: string): Client {
  if (client !== undefined) return client;
  throw new UsageError(
    `${command} needs the client as well: let the module of --config say \`export { redis }\`, or give --url`,
  );
}
