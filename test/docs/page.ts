import { readdirSync, readFileSync } from "node:fs";
import { join } from "node:path";
import { fileURLToPath } from "node:url";

export const ROOT: string = fileURLToPath(new URL("../..", import.meta.url));

/** A fenced block of a page. */
export interface Block {
  readonly language: string;
  /** The nearest heading above. */
  readonly heading: string;
  readonly code: string;
}

/** A page of the documents. */
export class Page {
  /** From the root of the repository. */
  readonly file: string;
  readonly text: string;
  /** Every fenced block, in order. */
  readonly blocks: readonly Block[];
  /** The text without its fenced blocks. */
  readonly prose: string;

  constructor(file: string) {
    this.file = file;
    this.text = readFileSync(join(ROOT, file), "utf8");
    this.prose = this.text.replace(/^```.*?^```$/gms, "");
    this.blocks = [...this.text.matchAll(/^```(\w*)\n(.*?)^```$/gms)].map((match) => {
      const [, language, code] = match as unknown as [string, string, string];
      const headings = [...this.text.slice(0, match.index).matchAll(/^#+ (.*)$/gm)];
      return { language, code, heading: headings.at(-1)?.[1] ?? "" };
    });
  }

  /** The one TypeScript block under a heading. */
  blockUnder(heading: string): string {
    const found = this.blocks.filter(
      (block) => block.heading === heading && block.language === "ts",
    );
    if (found.length !== 1) throw new Error(`${found.length} blocks under "${heading}"`);
    return (found[0] as Block).code;
  }

  /** The cells of the table's rows under a heading, without its head. */
  tableUnder(heading: string): string[][] {
    const at = this.prose.search(new RegExp(`^#+ ${heading}$`, "m"));
    if (at < 0) throw new Error(`no heading "${heading}"`);
    const section = this.prose.slice(at).split(/^#/m)[1] ?? "";
    const rows = section.split("\n").filter((line) => line.startsWith("|"));
    return rows.slice(2).map((row) =>
      row
        .split(/(?<!\\)\|/)
        .slice(1, -1)
        .map((cell) => cell.trim()),
    );
  }
}

/** Every page under `docs`. */
export const pages: readonly Page[] = readdirSync(join(ROOT, "docs"), {
  recursive: true,
  encoding: "utf8",
})
  .filter((file) => file.endsWith(".md"))
  .map((file) => new Page(`docs/${file.replaceAll("\\", "/")}`));

export function page(file: string): Page {
  const found = pages.find((each) => each.file === file);
  if (found === undefined) throw new Error(`no page ${file}`);
  return found;
}
