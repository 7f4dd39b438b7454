import fc from "fast-check";

/** @param longestMs what the delays are measured by. */
export function delay(longestMs: number): fc.Arbitrary<number> {
  return fc.oneof(
    { arbitrary: fc.constant(0), weight: 3 },
    { arbitrary: fc.nat({ max: Math.round(longestMs / 20) }), weight: 2 },
    { arbitrary: fc.nat({ max: Math.round(longestMs / 2) }), weight: 3 },
    { arbitrary: fc.nat({ max: 2 * longestMs }), weight: 2 },
  );
}
