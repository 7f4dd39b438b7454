/** A Redis client as an application may have it. */
export type ClientName = "ioredis 6" | "ioredis 5" | "node-redis 6";

/**
 * The clients of the two services, or of the two groups of callers, of a lab: both majors of ioredis;
 * with `LAB_CLIENT=node-redis`, that one twice.
 */
export function labClients(): readonly [ClientName, ClientName] {
  const name = process.env["LAB_CLIENT"] ?? "ioredis";
  if (name === "ioredis") return ["ioredis 6", "ioredis 5"];
  if (name === "node-redis") return ["node-redis 6", "node-redis 6"];
  throw new Error(`LAB_CLIENT: expected ioredis or node-redis, got ${name}`);
}
