import { readdirSync, readFileSync } from "node:fs";
import { join } from "node:path";
import { describe, expect, it } from "vitest";
import { ROOT } from "../../docs/readme.ts";

const protocol = readFileSync(join(ROOT, "docs/internals/protocol.md"), "utf8");

/** The numbers of the rules, as they are written down. */
const rules = [...protocol.matchAll(/^(\d+)\. \*\*/gm)].map(([, number]) => Number(number));

/** What the document says: the files of each rule. */
const listed = new Map(
  [...protocol.matchAll(/^\| (\d+) [^|]* \| (.*) \|$/gm)].map(([, number, files]) => [
    Number(number),
    [...(files as string).matchAll(/`([^`]+)`/g)].map(([, file]) => file as string),
  ]),
);

/** What the comments of the code say. */
const marked = new Map<number, string[]>();
const files = readdirSync(join(ROOT, "src"), { recursive: true, encoding: "utf8" });
for (const file of files.filter((name) => name.endsWith(".ts")).sort()) {
  const source = readFileSync(join(ROOT, "src", file), "utf8");
  for (const rule of new Set(rulesNamedIn(source))) {
    marked.set(rule, [...(marked.get(rule) ?? []), file.replaceAll("\\", "/")]);
  }
}

/** "Rule 5", and also "rules 5 and 6". */
function rulesNamedIn(source: string): number[] {
  return [...source.matchAll(/\brules? \d+(?:(?:, | and )\d+)*/gi)].flatMap(([named]) =>
    (named.match(/\d+/g) ?? []).map(Number),
  );
}

describe("the protocol's rules", () => {
  it("are numbered from 1 on", () => {
    expect(rules).toEqual(rules.map((_, index) => index + 1));
    expect(rules.length).toBeGreaterThan(19);
  });

  it("are all kept somewhere", () => {
    expect([...listed.keys()]).toEqual(rules);
    expect([...marked.keys()].sort((one, other) => one - other)).toEqual(rules);
  });

  it.each(rules)("names every file that keeps rule %i, and no other", (rule) => {
    expect(listed.get(rule)).toEqual(marked.get(rule));
  });
});
