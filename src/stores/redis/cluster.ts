import { describe } from "../../validation.ts";
import type { ClientPort } from "./clients/port.ts";
import { hashTag, slotOf } from "./clients/slots.ts";

/**
 * The key of a record, without the client's prefix: in its lock's slot once the prefix is in front
 * of both (except: `recordsProblemOf`). Equal without a Cluster, so a move to one keeps records.
 */
export function recordKeyOf(client: ClientPort, key: string, submissionId: string): string {
  const whole = (client.keyPrefix ?? "") + key;
  return hashTag(whole) === undefined ? `{${whole}}:${submissionId}` : `${key}:${submissionId}`;
}

/** Why records cannot be kept on this client; `undefined` where they can. */
export function recordsProblemOf(client: ClientPort): string | undefined {
  if (!client.isCluster) return undefined;
  const { keyPrefix } = client;
  const lock = "lock:submit:42";
  const record = recordKeyOf(client, lock, "");
  const slotWithPrefix = (key: string) => slotOf(keyPrefix + key);
  if (keyPrefix !== undefined && slotWithPrefix(lock) === slotWithPrefix(record)) return undefined;
  const which = keyPrefix === undefined ? "of bytes that are no text" : describe(keyPrefix);
  return `the client's keyPrefix ${which} puts a lock and its record in different Cluster slots. Use a prefix of text without braces, or with a hash tag such as "{shop}:"`;
}
