/**
 * What the store uses of an ioredis client: structurally, so that ioredis 5, ioredis 6, their
 * Cluster classes and compatible forks fit, and no import ties users to one of them.
 */
export interface RedisClient {
  /** `ready` when commands can be sent. */
  readonly status: string;
  eval(script: string, numkeys: number, ...args: (string | number)[]): Promise<unknown>;
  connect(): Promise<void>;
  disconnect(): void;
  duplicate(...options: never[]): unknown;
  // biome-ignore lint/suspicious/noExplicitAny: what an event brings differs between the clients.
  on(event: string, listener: (...args: any[]) => void): unknown;
  // biome-ignore lint/suspicious/noExplicitAny: the same.
  off(event: string, listener: (...args: any[]) => void): unknown;
}

/** What is looked at where it is there. */
interface Inside {
  readonly isCluster?: boolean;
  /** The state of an ioredis connection; `select` is the database that it is in at the moment. */
  readonly condition?: { readonly select?: number } | null;
  readonly options?: { readonly connectTimeout?: number };
}

export function isCluster(client: RedisClient): boolean {
  return (client as Inside).isCluster === true;
}

/** How long the second connection may take to come up; it is opened when an answer is overdue. */
const connectTimeoutMs = 1_000;

/**
 * Another connection to the same place and the same database, which never queues and never
 * re-sends: what it does not answer is asked again by us.
 */
export function duplicate(client: RedisClient): RedisClient {
  const { condition, options } = client as Inside;
  const connectTimeout = Math.min(options?.connectTimeout ?? connectTimeoutMs, connectTimeoutMs);
  const connection = {
    connectTimeout,
    autoResendUnfulfilledCommands: false,
    commandTimeout: undefined,
    // A timed-out queue of an absent server is of no use to anybody.
    maxRetriesPerRequest: 0,
  };
  const common = {
    enableOfflineQueue: false,
    enableAutoPipelining: false,
    lazyConnect: false,
  };
  const retry = (times: number) => Math.min(50 * times, 500);
  if (isCluster(client)) {
    const inherited = (client as { options?: { redisOptions?: object } }).options?.redisOptions;
    const redisOptions = { ...inherited, ...connection };
    const copy = client.duplicate as (nodes: [], options: object) => unknown;
    return copy.call(client, [], {
      ...common,
      redisOptions,
      clusterRetryStrategy: retry,
    }) as RedisClient;
  }
  const copy = client.duplicate as (options: object) => unknown;
  return copy.call(client, {
    ...common,
    ...connection,
    retryStrategy: retry,
    // `select` at run time changes the database of the connection, not the options that are copied.
    ...(condition?.select === undefined ? {} : { db: condition.select }),
  }) as RedisClient;
}
