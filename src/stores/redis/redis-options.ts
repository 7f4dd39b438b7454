import { InvalidOptionError } from "../../errors.ts";
import { checkOptionNames, invalidOption } from "../../validation.ts";
import type { RedisClient } from "./ioredis.ts";

/** How a `RedisStore` keeps its locks. */
export interface RedisStoreOptions {
  /**
   * How many replicas have to confirm an acquire before it counts, so that the lock survives the
   * failover to one of them; and a record, before its `complete` is answered. 1 to 100; no more than
   * the server has, or every acquire is unavailable.
   * @defaultValue none: nobody waits for a replica
   */
  readonly ackReplicas?: number | undefined;
}

const names = ["ackReplicas"] as const satisfies readonly (keyof RedisStoreOptions)[];

/** @throws InvalidOptionError naming the option, what was expected and what came. */
export function resolveRedisOptions(
  client: RedisClient,
  options: RedisStoreOptions,
): RedisStoreOptions {
  checkOptionNames("RedisStore", options, names);
  const { ackReplicas } = options;
  if (ackReplicas === undefined) return {};
  const isCount = Number.isInteger(ackReplicas) && ackReplicas >= 1 && ackReplicas <= 100;
  if (!isCount) throw invalidOption("ackReplicas", "a whole number from 1 to 100", ackReplicas);
  if (typeof client.pipeline !== "function") {
    throw new InvalidOptionError(
      "ackReplicas: expected an ioredis client with pipeline(), got one without it",
    );
  }
  return { ackReplicas };
}
