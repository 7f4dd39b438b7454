import { readdirSync, readFileSync } from "node:fs";
import { join } from "node:path";
import { fileURLToPath } from "node:url";

export const ROOT: string = fileURLToPath(new URL("../..", import.meta.url));

/** A fenced block of a page. */
interface Block {
  readonly language: string;
  /** The nearest heading above. */
  readonly heading: string;
  readonly code: string;
}

/** A link or a picture of a page. */
interface Link {
  readonly target: string;
  readonly isPicture: boolean;
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

  get links(): Link[] {
    return [...this.prose.matchAll(/(!?)\[(?:[^\]]|\][^(])*\]\(([^)]+)\)/g)].map(
      ([, bang, target]) => ({
        target: target as string,
        isPicture: bang === "!",
      }),
    );
  }

  /** The link targets that a forge makes of the headings. */
  get anchors(): string[] {
    return [...this.prose.matchAll(/^#+ (.*)$/gm)].map(([, heading]) => {
      const text = (heading as string).toLowerCase().replace(/[^\p{L}\p{N} _-]/gu, "");
      return text.replaceAll(" ", "-");
    });
  }

  /** The one block under a heading, of TypeScript where nothing else is asked for. */
  blockUnder(heading: string, language = "ts"): string {
    const found = this.blocks.filter(
      (block) => block.heading === heading && block.language === language,
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

/** The files of the manual. */
const manual: readonly string[] = readdirSync(join(ROOT, "docs"), {
  recursive: true,
  encoding: "utf8",
})
  // The site's generator is in a folder that begins with a dot.
  .filter((file) => file.endsWith(".md") && !file.startsWith("."))
  .map((file) => `docs/${file.replaceAll("\\", "/")}`)
  .sort();

/** The README and every page under `docs`. */
export const pages: readonly Page[] = ["README.md", ...manual].map((file) => new Page(file));

/** Those and what a contributor reads besides. */
export const documents: readonly Page[] = [
  ...pages,
  ...["CONTRIBUTING.md", "SECURITY.md", "CHANGELOG.md"].map((file) => new Page(file)),
];

export function page(file: string): Page {
  const found = documents.find((each) => each.file === file);
  if (found === undefined) throw new Error(`no page ${file}`);
  return found;
}
