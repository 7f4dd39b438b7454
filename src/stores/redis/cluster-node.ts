import { isCluster, type RedisClient } from "./ioredis.ts";

interface Inside {
  /** The nodes of each slot, the master first. */
  readonly slots?: readonly (readonly string[] | undefined)[];
  readonly options?: { readonly keyPrefix?: string };
}

/**
 * The node of a Cluster that a key is on, so that one silent node does not put the others under
 * suspicion; always the same without a Cluster. A wrong answer would cost availability, not safety.
 */
export function nodeOf(client: RedisClient, key: string): string {
  if (!isCluster(client)) return "";
  const { slots, options } = client as Inside;
  return slots?.[slotOf((options?.keyPrefix ?? "") + key)]?.[0] ?? "";
}

/** The hash slot as the Redis Cluster specification defines it: CRC-16/XMODEM of the key or of its hash tag, modulo 16384. */
export function slotOf(key: string): number {
  const open = key.indexOf("{");
  const close = key.indexOf("}", open + 1);
  const hashed = open >= 0 && close > open + 1 ? key.slice(open + 1, close) : key;
  let crc = 0;
  for (const byte of Buffer.from(hashed)) {
    crc ^= byte << 8;
    for (let bit = 0; bit < 8; bit++) crc = crc & 0x8000 ? (crc << 1) ^ 0x1021 : crc << 1;
  }
  return crc & 0x3fff;
}
