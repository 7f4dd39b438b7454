import { readdirSync, readFileSync } from "node:fs";
import { join } from "node:path";
import { expect, test } from "vitest";
import { ROOT, readme } from "../../docs/readme.ts";

/** What every `describe` and `test` of the suite is called. */
const titles = readdirSync(join(ROOT, "test"), { recursive: true, encoding: "utf8" })
  .filter((file) => file.endsWith(".ts") && !file.includes("node_modules"))
  .flatMap((file) => {
    const source = readFileSync(join(ROOT, "test", file), "utf8");
    // After `test(` and `describe.skip(`, or behind the table of an `each`.
    const title = /(?:\b(?:test|describe)(?:\.\w+)*|\))\(\s*(["`])(.*?)\1/gs;
    return [...source.matchAll(title)].map(([, , text]) => text as string);
  });

/** Those of 1 to 8 that are named: `P3`, `P1 and P2`, `P1 to P4`. */
function promisesIn(title: string): number[] {
  const ranges = [...title.matchAll(/\bP(\d+)(?: to P(\d+))?/g)];
  return ranges.flatMap(([, from, to = from]) => {
    const [first, last] = [Number(from), Number(to)];
    return Array.from({ length: last - first + 1 }, (_, i) => first + i);
  });
}

test("every promise of the README is named by the tests that hold it", () => {
  const promises = [...readme.matchAll(/^\| P(\d+) \|/gm)].map(([, number]) => Number(number));
  expect(promises.length).toBeGreaterThan(7);
  const named = new Set(titles.flatMap(promisesIn));
  expect(promises.filter((promise) => !named.has(promise))).toEqual([]);
  // A range must not promise more than there is.
  expect([...named].filter((promise) => !promises.includes(promise))).toEqual([]);
});

test("every rule of the protocol is named by a test", () => {
  const protocol = readFileSync(join(ROOT, "docs/internals/protocol.md"), "utf8");
  const rules = [...protocol.matchAll(/^(\d+)\. \*\*/gm)].map(([, number]) => number as string);
  expect(rules.length).toBeGreaterThan(13);
  const named = titles.flatMap((title) => /^rule (\d+)\b/.exec(title)?.[1] ?? []);
  expect(rules.filter((rule) => !named.includes(rule))).toEqual([]);
});
