import type { ClientPort, ServerPort } from "../stores/redis/clients/port.ts";
import { besideLock, ofOutlived } from "../stores/redis/commands/values.ts";
import { performance, sleep } from "../time.ts";
import { answerOf } from "./connect.ts";
import type { CliLock, CliTarget } from "./context.ts";
import { CliError, exitCode, toCliError } from "./failure.ts";
import { count, duration } from "./terminal.ts";

export interface Scan {
  readonly looked: number;
  readonly total: number | undefined;
  /** Why the scan stopped early, or a remedy, without a final full stop; `undefined` if whole. */
  readonly partial: string | undefined;
  readonly tookMs: number;
}

/**
 * The COUNT of a SCAN, during which Redis serves no other client. With 812 000 keys, a SCAN with a
 * COUNT of 1 000 took 0.8 ms.
 */
const batch = 500;
/** The pause between two SCANs, in ms, in which Redis serves other clients. */
const pauseMs = 5;

/** The number of test keys. With two masters, all are on one master once in 32 768 times. */
const probes = 16;

/** @throws CliError for a plain client of a Cluster, up or down: a scan would miss other nodes' keys. */
export async function refuseNodeOfCluster(connection: CliTarget): Promise<void> {
  const client = clientOf(connection);
  if (client.isCluster) return;
  const { address, locks } = connection;
  const asked = Array.from({ length: probes }, (_, index) =>
    client.eval("return 1", { keys: [`${locks[0].keyPrefix}probe-${index}`], args: [] }),
  );
  const answers = Promise.all(asked.map((each) => each.catch((error: unknown) => error)));
  const refused = /\b(MOVED|CLUSTERDOWN)\b/;
  const moved = (await answerOf(address, answers)).find((each) => refused.test(String(each)));
  if (moved !== undefined) throw toCliError(moved, address);
}

export function clientOf({ client }: CliTarget): ClientPort {
  if (client !== undefined) return client;
  throw new CliError("this command needs `export { redis }` in the module of --config, too");
}

/**
 * Looks at every key that begins with `start`, node by node.
 * @param found called after each SCAN with its keys, without the client's prefix; a key may come
 * twice. If `found` returns a sentence, the scan ends.
 */
export async function scanKeys(
  connection: CliTarget,
  start: string,
  budgetMs: number,
  found: (keys: readonly string[]) => Promise<string | undefined>,
  progress?: (looked: number) => void,
  masters: readonly ServerPort[] = clientOf(connection).servers(),
): Promise<Scan> {
  const startedAt = performance.now();
  const { clientPrefix, user: login = "default" } = connection;
  const pattern = `${(clientPrefix + start).replace(/[*?[\]\\^]/g, "\\$&")}*`;
  const sizes = masters.map((node) => answerOf(connection.address, node.ask(["dbsize"])));
  const counted = await Promise.all(sizes).catch(() => undefined);
  const total = counted?.reduce((sum: number, size) => sum + Number(size), 0);
  let looked = 0;
  let partial: string | undefined;
  for (const node of masters) {
    const { address } = node;
    let cursor = "0";
    do {
      if (performance.now() - startedAt > budgetMs) partial ??= "Use a longer --budget";
      if (partial !== undefined) break;
      if (looked > 0) await sleep(pauseMs);
      const scanned = node.ask(["scan", cursor, "MATCH", pattern, "COUNT", `${batch}`]);
      const reply = await answerOf(address, scanned).catch((error: unknown) => {
        if (!/\bNOPERM\b.*\bscan\b/.test(String(error))) throw error;
        const text = `this needs +scan, which ${address} does not permit ${login}. Permit it with: ACL SETUSER ${login} +scan. show, free, watch and forget of one user work without +scan`;
        throw new CliError(text, exitCode.notPermitted);
      });
      const [next, keys] = reply as [cursor: string, keys: string[]];
      partial = await found(keys.map((key) => key.slice(clientPrefix.length)));
      looked = Math.min(looked + batch, total ?? Number.POSITIVE_INFINITY);
      progress?.(looked);
      cursor = next;
    } while (cursor !== "0");
  }
  const tookMs = performance.now() - startedAt;
  // `looked` adds up the COUNTs, which are estimates: a scan that is whole saw every key.
  if (partial === undefined && total !== undefined) looked = total;
  return { looked, total, partial, tookMs };
}

export function scanText({ looked, total, partial, tookMs }: Scan): string {
  const of = total === undefined ? "" : ` of ${count(total)}`;
  const took = duration(tookMs);
  if (partial === undefined) {
    // Without +dbsize the sum of the COUNTs may be far above the number of keys.
    const keys = total === undefined ? "all" : count(looked);
    return `looked at ${keys} keys in ${took} (SCAN, ${batch} at a time, ${pauseMs} ms apart)`;
  }
  return `Not complete: after ${took} about ${count(looked)}${of} keys had been looked at. ${partial}.`;
}

/** Whether a key under the prefix is not a lock: a record, a told answer, rule 24's test key. */
export function isNoLock(lock: CliLock, key: string): boolean {
  const [, own] = besideLock.exec(key) ?? [];
  return own !== undefined && userOf(lock, own) !== undefined;
}

export function outlivedUserOf(lock: CliLock, key: string): string | undefined {
  const [, own] = ofOutlived.exec(key) ?? [];
  return own === undefined ? undefined : userOf(lock, own);
}

/** The user id in a key; `undefined` unless `keyFor` makes this key of that id. */
export function userOf(lock: CliLock, key: string): string | undefined {
  for (const read of [decodeURIComponent, String]) {
    try {
      // A `keyOf` may put text behind the id, too.
      const [before = "", after = ""] = lock.keyFor("probe").split("probe");
      const user = read(key.slice(before.length, key.length - after.length));
      if (lock.keyFor(user) === key) return user;
    } catch {}
  }
  return undefined;
}
