const names = ["ioredis 5", "ioredis 6", "node-redis 6"] as const;

/** A Redis client as an application may have it. */
export type ClientName = (typeof names)[number];

/** What the bounded forms of the labs use, where both can: one lock, two libraries. */
export const bothLibraries: readonly [ClientName, ClientName] = ["ioredis 5", "node-redis 6"];

/**
 * The clients of the two services, or of the two groups of callers, of a lab: both majors of ioredis;
 * with `LAB_CLIENT="node-redis 6"`, that one twice.
 */
export function labClients(): readonly [ClientName, ClientName] {
  const given = process.env["LAB_CLIENT"];
  if (given === undefined) return ["ioredis 6", "ioredis 5"];
  const name = names.find((each) => each === given);
  if (name === undefined)
    throw new Error(`LAB_CLIENT: expected ${names.join(" or ")}, got ${given}`);
  return [name, name];
}
