import { describe } from "../../validation.ts";
import { hasTextPrefix, isCluster, keyPrefixOf, type RedisClient } from "./ioredis.ts";
import { hashTag, slotOf } from "./slots.ts";

/**
 * The key of a record: in the slot of its lock, whatever prefix the client puts in front of both.
 * The same layout without a Cluster, so that a move to one keeps its records.
 */
export function recordKeyOf(client: RedisClient, key: string, submissionId: string): string {
  const whole = keyPrefixOf(client) + key;
  return hashTag(whole) === undefined ? `{${whole}}:${submissionId}` : `${key}:${submissionId}`;
}

/** Why records cannot be kept on this client; `undefined` where they can. */
export function recordsProblemOf(client: RedisClient): string | undefined {
  if (!isCluster(client)) return undefined;
  const prefix = keyPrefixOf(client);
  const lock = "lock:submit:42";
  const record = recordKeyOf(client, lock, "");
  const isTogether = slotOf(prefix + lock) === slotOf(prefix + record);
  if (isTogether && hasTextPrefix(client)) return undefined;
  return `expected a keyPrefix of the client that leaves a lock and its record in one slot of the Cluster, got ${describe(prefix)}: let it be a text without braces, or with a pair around something, as in "{shop}:"`;
}
