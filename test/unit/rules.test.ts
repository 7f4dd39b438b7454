import { readdirSync, readFileSync } from "node:fs";
import { join } from "node:path";
import { fileURLToPath } from "node:url";
import { expect, test } from "vitest";
import { misfits } from "../lab/simulation/mutants/workshop.ts";

const root = fileURLToPath(new URL("../..", import.meta.url));
const protocol = readFileSync(join(root, "docs/internals/protocol.md"), "utf8");
const heading = "## Where each rule is kept";

/** The numbers of the rules, as the protocol lists them. */
const rules = [...protocol.matchAll(/^(\d+)\. \*\*/gm)].map(([, number]) => Number(number));

/** The files of a folder whose comments name a rule, as in `Rule 7` and `Rules 5 and 6`. */
function marksIn(folder: string): Map<number, string[]> {
  const marks = new Map<number, string[]>(rules.map((rule) => [rule, []]));
  const files = readdirSync(join(root, folder), { recursive: true, encoding: "utf8" });
  for (const file of files.filter((name) => name.endsWith(".ts")).sort()) {
    const path = `${folder}/${file.replaceAll("\\", "/")}`;
    const named = readFileSync(join(root, path), "utf8").matchAll(
      /\bRules? (\d+(?:(?:,| and) \d+)*)/g,
    );
    const numbers = [...named].flatMap(([, list]) => (list as string).match(/\d+/g) ?? []);
    for (const rule of new Set(numbers.map(Number))) {
      const places = marks.get(rule);
      if (places === undefined) throw new Error(`${path} names rule ${rule}, and there is none.`);
      places.push(path);
    }
  }
  return marks;
}

const marks = marksIn("src");

test("every rule of the protocol is named where the code keeps it", () => {
  const missing = rules.filter((rule) => marks.get(rule)?.length === 0);
  expect(missing, "rules without a comment `Rule N` in src").toEqual([]);
});

test("the protocol lists the places, and no other", () => {
  const list = [...marks].map(
    ([rule, files]) => `- Rule ${rule}: ${files.map((file) => `\`${file}\``).join(", ")}`,
  );
  const given = protocol.split(`${heading}\n`)[1]?.match(/^- Rule .*$/gm) ?? [];
  const right = `${heading}\n\n${list.join("\n")}\n`;
  expect(given, `docs/internals/protocol.md must end with this:\n\n${right}`).toEqual(list);
});

// The hunt itself takes minutes, and would find it out too late.
test("every mutant's text stands in its file, once", async () => {
  expect(await misfits()).toEqual([]);
});
