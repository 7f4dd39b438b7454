import { readFileSync } from "node:fs";
import { fileURLToPath } from "node:url";

export const ROOT: string = fileURLToPath(new URL("../..", import.meta.url));

export const readme: string = readFileSync(new URL("../../README.md", import.meta.url), "utf8");

/** A fenced block of the README. */
export interface Block {
  readonly language: string;
  /** The nearest heading above. */
  readonly heading: string;
  readonly code: string;
}

/** Every fenced block, in order. */
export const blocks: readonly Block[] = [...readme.matchAll(/^```(\w*)\n(.*?)^```$/gms)].map(
  (match) => {
    const [, language, code] = match as unknown as [string, string, string];
    const headings = [...readme.slice(0, match.index).matchAll(/^#+ (.*)$/gm)];
    return { language, code, heading: headings.at(-1)?.[1] ?? "" };
  },
);

/** The one TypeScript block under a heading. */
export function blockUnder(heading: string): string {
  const found = blocks.filter((block) => block.heading === heading && block.language === "ts");
  if (found.length !== 1) throw new Error(`${found.length} blocks under "${heading}"`);
  return (found[0] as Block).code;
}

/** The text without its fenced blocks. */
export const prose: string = readme.replace(/^```.*?^```$/gms, "");
