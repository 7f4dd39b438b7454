/** The hash tag of a key, which alone decides its slot; `undefined` where the whole key does. */
export function hashTag(key: string): string | undefined {
  const open = key.indexOf("{");
  const close = key.indexOf("}", open + 1);
  return open >= 0 && close > open + 1 ? key.slice(open + 1, close) : undefined;
}

/** The CRC-16 of each byte, for `slotOf`. */
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
