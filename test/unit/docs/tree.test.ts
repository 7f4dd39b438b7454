import { readdirSync } from "node:fs";
import { join } from "node:path";
import { expect, test } from "vitest";
import { page, ROOT } from "../../docs/page.ts";

/** The files of a drawn tree, each with what is said of it. */
function drawn(tree: string): Map<string, string> {
  const folders: string[] = [];
  const files = new Map<string, string>();
  for (const line of tree.split("\n").filter((each) => each.trim() !== "")) {
    const [, indent = "", name = "", said = ""] = /^( *)(\S+)(?: +(.*))?$/.exec(line) ?? [];
    folders.length = indent.length / 2;
    if (name.endsWith("/")) folders.push(name.slice(0, -1));
    else {
      const path = [...folders, name].join("/");
      if (files.has(path)) throw new Error(`${path} is listed twice`);
      files.set(path, said);
    }
  }
  return files;
}

const architecture = page("docs/internals/architecture.md");
const tree = drawn(architecture.blockUnder("The files", ""));
const files = readdirSync(join(ROOT, "src"), { recursive: true, encoding: "utf8" })
  .filter((file) => file.endsWith(".ts"))
  .map((file) => `src/${file.replaceAll("\\", "/")}`);

test("the architecture lists every file of src, and no other", () => {
  expect([...tree.keys()].sort()).toEqual(files.sort());
});

test("the architecture says something of every file", () => {
  const silent = [...tree].filter(([, said]) => said.split(" ").length < 2);
  expect(silent).toEqual([]);
});
