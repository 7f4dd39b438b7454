import { describe, expect, test } from "vitest";
import { Arguments, helpOf } from "../../../src/cli/context.ts";
import { exitCode } from "../../../src/cli/failure.ts";
import { commands } from "../../../src/cli/main.ts";
import { Page, page, pages } from "../../docs/page.ts";
import { inSources } from "../docs/sources.ts";
import { cases } from "./cases.ts";

const reference = page("docs/reference/cli.md");
const texts = new Page("test/unit/cli/texts.md");

describe.each(Object.entries(cases))("the text of %s", (_command, all) => {
  test.each(all)("is that of texts.md: $title", ({ title, command, lines }) => {
    const [block] = texts.blocks.filter(({ heading }) => heading === title);
    expect(`$ ${command}\n${lines.join("\n")}\n`).toBe(block?.code);
  });
});

test("texts.md has no other text", () => {
  const titles = Object.values(cases).flatMap((all) => all.map(({ title }) => title));
  expect(texts.blocks.map(({ heading }) => heading)).toEqual(titles);
});

test("the reference shows one output of each command, as it is", () => {
  const shown = reference.blocks.filter(({ language }) => language === "text");
  expect(shown.map(({ heading }) => heading)).toEqual(Object.keys(commands));
  for (const { heading, code } of shown) {
    const outputs = cases[heading]?.map(({ command, lines }) => [`$ ${command}`, ...lines, ""]);
    expect(outputs?.map((lines) => lines.join("\n"))).toContain(code);
  }
});

/** The options of a help text, as they are typed. */
function typedIn(help: readonly string[]): string[] {
  return help.flatMap((line) => /^ {2}(--[\w-]+(?: <[^>]+>)?) /.exec(line)?.[1] ?? []);
}

describe.each(Object.keys(commands))("the options of %s", (name) => {
  const typed = typedIn(helpOf(name)).sort();

  test("are in its help, as they are read from the command line", () => {
    for (const option of typed.filter((each) => each !== "--help")) {
      const [flag = "", value] = option.split(" ");
      const user = helpOf(name)[0]?.includes("<user>") ? ["42"] : [];
      const args = new Arguments([
        name,
        ...user,
        flag,
        ...(value === undefined ? [] : ["a value"]),
      ]);
      expect(args.has(flag.slice(2))).toBe(true);
      expect(args.text(flag.slice(2))).toBe(value && "a value");
      expect(() => new Arguments([name, ...user, `${flag}x`])).toThrow("Unknown option");
    }
  });

  test("are in the reference", () => {
    const rows = ["Where Redis is", "Options of every command", name].flatMap((heading) =>
      reference.tableUnder(heading).map(([option = ""]) => option.replaceAll("`", "")),
    );
    expect(rows.sort()).toEqual(typed);
  });
});

test("no text runs a package that npx would have to fetch first", () => {
  const texts = [page("CHANGELOG.md"), ...pages].map(({ text }) => text);
  const all = [...texts, ...inSources(/.*npx .*/g)].join("\n");
  const runs = all.split("\n").filter((line) => /\bnpx\b.*submit-lock/.test(line));
  expect(runs.length).toBeGreaterThan(5);
  for (const line of runs) expect(line).toContain("npx --no-install submit-lock");
});

test("the help fits into 100 columns", () => {
  const lines = [undefined, ...Object.keys(commands)].flatMap(helpOf);
  expect(lines.filter((line) => line.length > 100)).toEqual([]);
});

test("the reference names every exit code", () => {
  const codes = reference.tableUnder("Exit codes").map(([code]) => Number(code));
  expect(codes).toEqual(Object.values(exitCode));
});
