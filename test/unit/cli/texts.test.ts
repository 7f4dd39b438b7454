import { describe, expect, test } from "vitest";
import { commands } from "../../../src/cli/commands.ts";
import { exitCode } from "../../../src/cli/failure.ts";
import { helpOf, overview, typed } from "../../../src/cli/help.ts";
import { page, pages } from "../../docs/page.ts";
import { inSources } from "../docs/sources.ts";
import { cases } from "./cases.ts";

const reference = page("docs/reference/cli.md");

describe.each(Object.entries(cases))("what %s prints", (_command, all) => {
  test.each(all)("is what the reference shows: $title", ({ title, command, lines }) => {
    const [block] = reference.blocks.filter(({ heading }) => heading === title);
    expect(`$ ${command}\n${lines.join("\n")}\n`).toBe(block?.code);
  });
});

test("the reference shows no other output", () => {
  const titles = Object.values(cases).flatMap((all) => all.map(({ title }) => title));
  const shown = reference.blocks.filter(({ language }) => language === "text");
  expect(shown.map(({ heading }) => heading)).toEqual(titles);
});

describe("the options in the reference", () => {
  const namesUnder = (heading: string) =>
    reference.tableUnder(heading).map(([name = ""]) => name.replaceAll("`", ""));

  test.each(commands)("are those of $name", ({ name, options }) => {
    const names = [...namesUnder("Where Redis is"), ...namesUnder(`Options of ${name}`)];
    expect(names.sort()).toEqual(options.map(typed).sort());
  });

  test("are all in the help of their command", () => {
    for (const command of commands) {
      const help = helpOf(command).join("\n");
      for (const option of command.options) expect(help).toContain(`  ${typed(option)}`);
    }
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
  const lines = [overview(), ...commands.map(helpOf)].flat();
  expect(lines.filter((line) => line.length > 100)).toEqual([]);
});

test("the reference names every exit code", () => {
  const codes = reference.tableUnder("Exit codes").map(([code]) => Number(code));
  expect(codes).toEqual(Object.values(exitCode));
});
