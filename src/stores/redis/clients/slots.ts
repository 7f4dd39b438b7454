import { describe } from "../../../validation.ts";
import type { ClientPort } from "./port.ts";

/** The hash tag of a key, which alone decides its slot; `undefined` where the whole key does. */
export function hashTag(key: string): string | undefined {
  const open = key.indexOf("{");
  const close = key.indexOf("}", open + 1);
  return open >= 0 && close > open + 1 ? key.slice(open + 1, close) : undefined;
}

const crcs: Uint16Array = Uint16Array.from({ length: 256 }, (_, byte) => {
  let crc = byte << 8;
  for (let bit = 0; bit < 8; bit++) crc = crc & 0x8000 ? (crc << 1) ^ 0x1021 : crc << 1;
  return crc;
});

/** CRC-16/XMODEM of the key or its hash tag, modulo 16384 (Redis Cluster specification). */
export function slotOf(key: string): number {
  let crc = 0;
  for (const byte of Buffer.from(hashTag(key) ?? key)) {
    crc = ((crc << 8) & 0xffff) ^ (crcs[(crc >> 8) ^ byte] as number);
  }
  return crc & 0x3fff;
}

/**
 * Returns a record's key without the client's prefix. With the prefix, record and lock are in one
 * slot (except: `recordsProblemOf`). The key is equal on one server: a move to a Cluster keeps it.
 */
export function recordKeyOf(client: ClientPort, key: string, submissionId: string): string {
  const whole = (client.keyPrefix ?? "") + key;
  return hashTag(whole) === undefined ? `{${whole}}:${submissionId}` : `${key}:${submissionId}`;
}

export function recordsProblemOf(client: ClientPort): string | undefined {
  if (!client.isCluster) return undefined;
  const { keyPrefix } = client;
  const lock = "lock:submit:42";
  const record = recordKeyOf(client, lock, "");
  const slotWithPrefix = (key: string) => slotOf(keyPrefix + key);
  if (keyPrefix !== undefined && slotWithPrefix(lock) === slotWithPrefix(record)) return undefined;
  const which = keyPrefix === undefined ? "that is not UTF-8" : describe(keyPrefix);
  return `the client's keyPrefix ${which} can put a lock and its record in different Cluster slots. Use a prefix of text without braces, or with a hash tag such as "{shop}:"`;
}
