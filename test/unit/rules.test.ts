import { readdirSync, readFileSync } from "node:fs";
import { join } from "node:path";
import { expect, test } from "vitest";
import { page, ROOT } from "../docs/page.ts";
import { flaws } from "../lab/nets/mutants.ts";
import { pageFlaws } from "../lab/sequences/mutants.ts";
import { misfits, mutations } from "../lab/simulation/mutants/workshop.ts";
import { sqlMutations } from "../lab/transaction/mutants.ts";

const protocol = page("docs/internals/protocol.md").text;
const rules = numbers(protocol, /^(\d+)\. \*\*/gm);
const promises = numbers(page("README.md").text, /^\| P(\d+) \|/gm);

const titles = textsOf("test").flatMap((source) => {
  // After `test(` or `describe(`, with or without a modifier, or behind the table of an `each`.
  const title = /(?:\b(?:test|describe)(?:\.\w+)*|\))\(\s*(["`])(.*?)\1/gs;
  return [...source.matchAll(title)].map(([, , text]) => text as string);
});

function textOf(file: string): string {
  return readFileSync(join(ROOT, file), "utf8");
}

function filesOf(folder: string, ending = ".ts"): string[] {
  return readdirSync(join(ROOT, folder), { recursive: true, encoding: "utf8" })
    .filter((file) => file.endsWith(ending) && !file.includes("node_modules"))
    .map((file) => join(folder, file));
}

function textsOf(folder: string): string[] {
  return filesOf(folder).map(textOf);
}

function numbers(text: string, pattern: RegExp): number[] {
  return [...text.matchAll(pattern)].map(([, number]) => Number(number));
}

/** Those that are named: `P3`, `P1 and P2`, `P1 to P4`. */
function promisesIn(title: string): number[] {
  const ranges = [...title.matchAll(/\bP(\d+)(?: to P(\d+))?/g)];
  return ranges.flatMap(([, from, to = from]) => {
    const [first, last] = [Number(from), Number(to)];
    return Array.from({ length: last - first + 1 }, (_, i) => first + i);
  });
}

test("no file of src is longer than 350 lines: split one where a second reader begins", () => {
  const lines = filesOf("src").map((file) => [file, textOf(file).trimEnd().split("\n").length]);
  expect(lines.filter(([, count]) => Number(count) > 350)).toEqual([]);
});

// Beside these, the adapters' and the stores' counterparts, and a command that calls its method.
const counterparts = [
  ...["submitGuard", "SubmitGuard", "SubmitGuardOptions", "AnyHandler", "ProtectedHandler"],
  ...["contentOf", "payloadOf", "inspectionOf", "outlivedOf", "noFingerprint", "read"],
  ...["forget", "free"],
];

test("no name means two things in src", () => {
  const homes = new Map<string, Set<string>>();
  // The browser's half imports nothing of the others, so nobody reads the two beside each other.
  for (const file of filesOf("src").filter((each) => !each.startsWith(join("src", "browser")))) {
    const named =
      /^(?:export )?(?:async )?(?:abstract )?(?:function\*?|const|let|class|interface|type) (\w+)/gm;
    for (const [, name = ""] of textOf(file).matchAll(named)) {
      homes.set(name, (homes.get(name) ?? new Set()).add(file));
    }
  }
  const shared = [...homes].filter(([, files]) => files.size > 1).map(([name]) => name);
  expect(shared.filter((name) => !counterparts.includes(name))).toEqual([]);
  expect(counterparts.filter((name) => !shared.includes(name))).toEqual([]);
});

test("every rule of the transaction that is named is in its list", () => {
  const listed = new Set(numbers(textOf("src/sql/index.ts"), /^ \* - J(\d+): /gm));
  const naming = [
    ...textsOf("src"),
    ...textsOf("test"),
    textOf("test/lab/transaction/mutants.diff"),
  ];
  const named = naming.flatMap((text) => numbers(text, /\bJ(\d+)\b/g));
  expect([...new Set(named)].filter((rule) => !listed.has(rule))).toEqual([]);
});

test("CONTRIBUTING and the pages of the internals name no function that is gone", () => {
  const sources = ["src", "test", "bench", "examples"].flatMap(textsOf);
  const words = new Set(sources.flatMap((text) => text.match(/[A-Za-z_$][\w$]*/g) ?? []));
  const pages = ["CONTRIBUTING.md", ...filesOf("docs/internals", ".md")].map(textOf);
  const names = pages.flatMap((text) => [...text.matchAll(/`([a-z]\w*[A-Z]\w*)`/g)]);
  expect(names.map(([, name = ""]) => name).filter((name) => !words.has(name))).toEqual([]);
});

test("every room of src has rules for its imports", () => {
  const rules = readFileSync(join(ROOT, "biome.json"), "utf8");
  const entries = readdirSync(join(ROOT, "src"), { withFileTypes: true });
  for (const { name } of entries.filter((each) => each.isDirectory())) {
    expect(rules).toContain(`"src/${name}/`);
  }
});

test("every rule of the protocol is named where the code keeps it, and no other", () => {
  expect(rules.length).toBeGreaterThan(13);
  // As in `Rule 7` and `Rules 5 and 6`.
  const lists = textsOf("src").flatMap((text) => [
    ...text.matchAll(/\bRules? (\d+(?:(?:,| and) \d+)*)/g),
  ]);
  const named = new Set(lists.flatMap(([, list]) => numbers(list as string, /(\d+)/g)));
  expect([...named].sort((one, other) => one - other)).toEqual(rules);
});

test("every rule of the protocol has a test", () => {
  const named = new Set(titles.flatMap((title) => numbers(title, /^rule (\d+)\b/g)));
  expect(rules.filter((rule) => !named.has(rule))).toEqual([]);
});

test("every promise of the README has a test and a limit", () => {
  expect(promises.length).toBeGreaterThan(7);
  const named = new Set(titles.flatMap(promisesIn));
  expect([...named].sort((one, other) => one - other)).toEqual(promises);
  const rows = page("docs/evidence/promises.md").tableUnder("The promises");
  expect(rows.map(([name]) => name)).toEqual(promises.map((number) => `P${number}`));
});

// The hunt itself takes minutes, and would find it out too late.
test("every mutant fits src, in one place", async () => {
  expect(await misfits([...mutations, ...sqlMutations, ...flaws, ...pageFlaws])).toEqual([]);
});
