import { createHash } from "node:crypto";
import fc from "fast-check";

const owners = [1, 2, 3].map((digit) => `0000000${digit}-0000-4000-8000-00000000000${digit}`);
/** Its value is nothing else. */
const ownerOf01 = "00000001-0000-4000-8000-000000000009";
// A hyphen has a meaning in Lua's patterns.
const submissions = ["first-".padEnd(22, "-"), "second".padEnd(22, "0")];
const fingerprints = ["-".repeat(22), "A".repeat(22), "B".repeat(22)];
const sha1Of = (text: string) => createHash("sha1").update(text).digest("hex");

/** Stands for the id of a key that holds no text: the SHA-1 of the key's name. */
export const idOfName = "the name";

const entry = fc.record({
  key: fc.constantFrom("k1", "k2", "k3"),
  ownerId: fc.constantFrom(...owners),
  id: fc.constantFrom(...submissions),
  fingerprint: fc.constantFrom(...fingerprints),
  answer: fc.constantFrom('{"s":201}', '{"s":201,"b":"höchstens 3 €"}'),
  /** Of a record, and of a cooldown, from now on. */
  expiresInMs: fc.constantFrom(20_000, 25_000, 60, -60),
  cooldownMs: fc.constantFrom(undefined, 60, 20_000, -60, 3_600_000),
  /** Whom a free is about; `undefined` for the owner id. */
  freeId: fc.constantFrom(undefined, undefined, "00000001", sha1Of("old").slice(0, 8), idOfName),
  deletesNow: fc.constantFrom(false, false, false, true),
});
/** One of those that a command is for. */
export type Entry = typeof entry extends fc.Arbitrary<infer Value> ? Value : never;

/** With what a command is written. */
const settings = {
  /** In time, too late, too early. */
  inMs: fc.constantFrom(1_000, 1_000, -500, 9_000),
  lifeMs: fc.constantFrom(60, 20_000, 25_000),
  /** A floor of the tokens that counts, that is too low, and that is too far ahead. */
  floorInMs: fc.constantFrom(1_000, -1_000, 61_000),
};

/** What happens to both servers next: a command, a key of somebody else, a memory that is full, time. */
export const step = fc.oneof(
  {
    weight: 12,
    arbitrary: fc.record({
      command: fc.constantFrom(
        "acquire" as const,
        "acquire" as const,
        "acquireOnce" as const,
        "acquireOnce" as const,
        "extend" as const,
        "release" as const,
        "release" as const,
        "complete" as const,
        "complete" as const,
        "record" as const,
        "inspect" as const,
        "free" as const,
        "free" as const,
        "touch" as const,
        "touchRecord" as const,
      ),
      entries: fc.array(entry, { minLength: 1, maxLength: 4 }),
      ...settings,
    }),
  },
  {
    weight: 2,
    arbitrary: fc.record({
      plant: entry,
      at: fc.constantFrom("lock" as const, "record" as const),
      value: fc.constantFrom("a list", "old", "", "1".repeat(58), "2".repeat(59), ownerOf01),
    }),
  },
  // As a step of the server's clock leaves a key.
  { weight: 2, arbitrary: fc.record({ lengthened: entry, lifeMs: fc.constantFrom(3_600_000) }) },
  { weight: 2, arbitrary: fc.record({ full: fc.boolean() }) },
  { weight: 1, arbitrary: fc.record({ waitMs: fc.constant(100) }) },
);
