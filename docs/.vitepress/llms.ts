/** `npm run docs:llms` writes `docs/llms.txt`: for agents, a line for each page and packed example. */
import { existsSync, readFileSync, writeFileSync } from "node:fs";
import { join } from "node:path";
import { fileURLToPath } from "node:url";
import { manualSidebar, ROOT } from "./pages.ts";

const read = (file: string) => readFileSync(join(ROOT, file), "utf8");
const pathOf = (file: string) => (file.startsWith("docs/") ? file.slice(5) : `../${file}`);

/** What the index says of a page, and the page's headings. */
function pageLine(file: string): string {
  const prose = read(file).replace(/^```.*?^```$/gms, "");
  const [, title] = /^# (.*)$/m.exec(prose) ?? [];
  const link = `(${pathOf(file)})`;
  const entry =
    read("docs/README.md")
      .split("\n")
      .find((line) => line.includes(link)) ?? "";
  const said = entry.slice(entry.indexOf(link) + link.length).replace(/^[:,] /, "");
  const headings = [...prose.matchAll(/^## (.*)$/gm)].map(([, heading]) => heading);
  return `- [${title}]${link}: ${said && `${said}. `}${headings.join("; ")}.`;
}

/** The first sentence of an example's opening comment. */
function exampleLine(file: string): string {
  const [comment = ""] = /^(\/\/ .*\n)+/.exec(read(file)) ?? [];
  const [said = ""] = /^.*?[.](?= |$)/s.exec(comment.replaceAll(/\n?\/\/ /g, " ").trim()) ?? [];
  return `- [${file}](${pathOf(file)}): ${said.trim()}`;
}

/** What `docs/llms.txt` must be. */
export function llmsText(): string {
  const { description, files, name } = JSON.parse(read("package.json"));
  const groups = manualSidebar().filter(({ items, text }) => items && text !== "The project");
  const sections = groups.map(({ items = [], text }) => [
    `## ${text}`,
    "",
    ...items.map((each) => pageLine(each.file as string)),
  ]);
  const examples = (files as string[]).filter((file) => /^examples\/.*\.ts$/.test(file));
  return `${[
    [`# ${name}`],
    [`> ${description}`],
    [
      "Paths are relative to this file. In a project it is `node_modules/submit-lock/docs/llms.txt`.",
    ],
    ["- [The README](../README.md): Quick start; what a client sees; guarantees and limits."],
    ...sections,
    [
      "## Examples",
      "",
      ...examples.filter((file) => existsSync(join(ROOT, file))).map(exampleLine),
    ],
  ]
    .map((lines) => lines.join("\n"))
    .join("\n\n")}\n`;
}

if (process.argv[1] === fileURLToPath(import.meta.url)) {
  writeFileSync(join(ROOT, "docs/llms.txt"), llmsText());
}
