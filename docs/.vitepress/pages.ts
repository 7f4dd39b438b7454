/** The pages of the site and their order, read from the Markdown itself. */
import { existsSync, readdirSync, readFileSync } from "node:fs";
import { dirname, join, posix } from "node:path";
import { fileURLToPath } from "node:url";

export const ROOT: string = fileURLToPath(new URL("../..", import.meta.url));

/** An entry of the sidebar. */
export interface Entry {
  readonly text: string;
  /** The page's file, from the root of the repository. */
  readonly file?: string;
  readonly items?: readonly Entry[];
}

function read(file: string): string {
  return readFileSync(join(ROOT, file), "utf8");
}

function markdownIn(folder: string): string[] {
  if (!existsSync(join(ROOT, folder))) return [];
  return readdirSync(join(ROOT, folder), { recursive: true, encoding: "utf8" })
    .filter((file) => file.endsWith(".md") && !file.startsWith("."))
    .map((file) => posix.join(folder, file.replaceAll("\\", "/")))
    .sort();
}

/** What the package ships of Markdown, beside the manual: the changelog, the results and others. */
export function shipped(): string[] {
  const { files } = JSON.parse(read("package.json")) as { files: string[] };
  return files.filter((file) => file.endsWith(".md"));
}

/** Every page of the site: the README, the manual, the API and what else the package ships. */
export function pages(): string[] {
  return ["README.md", ...markdownIn("docs"), ...markdownIn("api"), ...shipped()];
}

/** The path of a page on the site, with the extension `.md`. */
export function routeOf(file: string): string {
  if (file === "docs/README.md") return "manual.md";
  const path = file.replace(/^docs\//, "").replace(/README\.md$/, "index.md");
  return path.includes("/") ? path : path.toLowerCase();
}

/** The headings of an index, each with the pages that are linked below it. */
function groupsOf(index: string): Entry[] {
  const sections = read(index).split(/^## /m).slice(1);
  return sections.map((section) => {
    const links = [...section.matchAll(/\[([^\]]+)\]\(([^)#]+\.md)\)/g)];
    return {
      text: (section.split("\n")[0] as string).trim(),
      items: links.map(([, text, target]) => ({
        text: (text as string).replaceAll("`", "").replaceAll("\\", ""),
        file: posix.join(dirname(index), target as string),
      })),
    };
  });
}

/** The manual, grouped as its index is. Throws if the index leaves a page out. */
export function manualSidebar(): Entry[] {
  const groups = groupsOf("docs/README.md").filter(({ items }) => items?.length);
  const listed = new Set(groups.flatMap(({ items = [] }) => items.map(({ file }) => file)));
  const missing = markdownIn("docs").filter(
    (file) => !listed.has(file) && file !== "docs/README.md",
  );
  if (missing.length > 0) throw new Error(`docs/README.md does not list ${missing.join(", ")}`);
  const project = shipped().map((file) => ({ text: titleOf(file), file }));
  return [
    { text: "Overview", file: "README.md" },
    ...groups,
    { text: "The project", items: project },
  ];
}

/** The pages that `npm run docs:api` has made: the entry points of the package and their names. */
export function apiSidebar(): Entry[] {
  if (!existsSync(join(ROOT, "api/README.md"))) {
    throw new Error("there are no API pages: run `npm run docs:api` first");
  }
  const { name } = JSON.parse(read("package.json")) as { name: string };
  const entryPoints = groupsOf("api/README.md").flatMap(({ items = [] }) => items);
  const main = entryPoints.filter(({ text }) => text === "index");
  return [...main, ...entryPoints.filter((each) => !main.includes(each))].map(({ text, file }) => ({
    text: text === "index" ? name : `${name}/${text}`,
    file: file as string,
    items: groupsOf(file as string),
  }));
}

function titleOf(file: string): string {
  return /^# (.*)$/m.exec(read(file))?.[1] ?? file;
}
