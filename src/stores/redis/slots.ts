import { isCluster, keyPrefixOf, masterOf, type RedisClient } from "./ioredis.ts";

/** The hash slot of a key, the client's prefix in front of it; 0 without a Cluster. */
export function slotOfKey(client: RedisClient, key: string): number {
  return isCluster(client) ? slotOf(keyPrefixOf(client) + key) : 0;
}

/**
 * Rule 9: on a Cluster, the node that has the slot, so that one silent node does not put the others
 * under suspicion. Always the same without a Cluster. A wrong answer costs availability, not safety.
 */
export function nodeOf(client: RedisClient, slot: number): string {
  return (isCluster(client) ? masterOf(client, slot) : undefined) ?? "";
}

/** What of a key decides its slot, if not all of it. */
export function hashTag(key: string): string | undefined {
  const open = key.indexOf("{");
  const close = key.indexOf("}", open + 1);
  return open >= 0 && close > open + 1 ? key.slice(open + 1, close) : undefined;
}

/** The checksum of each single byte. */
const crcs: Uint16Array = Uint16Array.from({ length: 256 }, (_, byte) => {
  let crc = byte << 8;
  for (let bit = 0; bit < 8; bit++) crc = crc & 0x8000 ? (crc << 1) ^ 0x1021 : crc << 1;
  return crc;
});

/**
 * The hash slot as the Redis Cluster specification defines it: CRC-16/XMODEM of the key or of its
 * hash tag, modulo 16384.
 */
export function slotOf(key: string): number {
  let crc = 0;
  for (const byte of Buffer.from(hashTag(key) ?? key)) {
    crc = ((crc << 8) & 0xffff) ^ (crcs[(crc >> 8) ^ byte] as number);
  }
  return crc & 0x3fff;
}
