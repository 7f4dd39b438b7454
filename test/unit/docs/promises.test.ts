import { readdirSync, readFileSync } from "node:fs";
import { join } from "node:path";
import { expect, test } from "vitest";
import { page, ROOT } from "../../docs/page.ts";

/** What every `describe` and `test` of the suite is called, by file. */
const titles = new Map(
  readdirSync(join(ROOT, "test"), { recursive: true, encoding: "utf8" })
    .filter((file) => file.endsWith(".ts") && !file.includes("node_modules"))
    .sort()
    .map((file) => {
      const source = readFileSync(join(ROOT, "test", file), "utf8");
      // After `test(` and `describe.skip(`, or behind the table of an `each`.
      const title = /(?:\b(?:test|describe)(?:\.\w+)*|\))\(\s*(["`])(.*?)\1/gs;
      const found = [...source.matchAll(title)].map(([, , text]) => text as string);
      return [`test/${file.replaceAll("\\", "/")}`, found];
    }),
);

/** Those that are named: `P3`, `P1 and P2`, `P1 to P4`. */
function promisesIn(title: string): number[] {
  const ranges = [...title.matchAll(/\bP(\d+)(?: to P(\d+))?/g)];
  return ranges.flatMap(([, from, to = from]) => {
    const [first, last] = [Number(from), Number(to)];
    return Array.from({ length: last - first + 1 }, (_, i) => first + i);
  });
}

function rulesIn(title: string): number[] {
  return [...title.matchAll(/^rule (\d+)\b/g)].map(([, number]) => Number(number));
}

/** The files whose titles name each number. */
function filesFor(numbersIn: (title: string) => number[], numbers: readonly number[]): string[][] {
  return numbers.map((number) =>
    [...titles]
      .filter(([, texts]) => texts.flatMap(numbersIn).includes(number))
      .map(([file]) => file),
  );
}

const readme = page("README.md");
const evidence = page("docs/evidence/promises.md");
const promises = [...readme.text.matchAll(/^\| P(\d+) \|/gm)].map(([, number]) => Number(number));
const protocol = page("docs/internals/protocol.md").text;
const rules = [...protocol.matchAll(/^(\d+)\. \*\*/gm)].map(([, number]) => Number(number));

test("every promise of the README is named by the tests that hold it", () => {
  expect(promises.length).toBeGreaterThan(7);
  const named = new Set([...titles.values()].flat().flatMap(promisesIn));
  expect(promises.filter((promise) => !named.has(promise))).toEqual([]);
  // A range must not promise more than there is.
  expect([...named].filter((promise) => !promises.includes(promise))).toEqual([]);
});

test("every promise of the README has its limit", () => {
  const rows = evidence.tableUnder("The promises").map(([name = ""]) => name);
  expect(rows).toEqual(promises.map((number) => `P${number}`));
});

test("the evidence lists the tests of every promise, and no other", () => {
  const files = filesFor(promisesIn, promises);
  const right = promises.map(
    (number, at) => `| P${number} | ${files[at]?.map((file) => `\`${file}\``).join(" ")} |`,
  );
  const given = evidence.text.split("## The tests of each promise")[1]?.match(/^\| P\d+ .*$/gm);
  expect(given, `docs/evidence/promises.md must have this:\n\n${right.join("\n")}`).toEqual(right);
});

test("every rule of the protocol is named by a test, and the evidence lists it", () => {
  expect(rules.length).toBeGreaterThan(13);
  const files = filesFor(rulesIn, rules);
  expect(rules.filter((_rule, at) => files[at]?.length === 0)).toEqual([]);
  const right = rules.map(
    (rule, at) => `- Rule ${rule}: ${files[at]?.map((file) => `\`${file}\``).join(", ")}`,
  );
  const given = evidence.text.match(/^- Rule \d+: .*$/gm);
  expect(given, `docs/evidence/promises.md must have this:\n\n${right.join("\n")}`).toEqual(right);
});
