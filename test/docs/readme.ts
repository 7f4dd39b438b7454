import { type Block, Page } from "./page.ts";

export { type Block, ROOT } from "./page.ts";

const page = new Page("README.md");

export const readme: string = page.text;
export const blocks: readonly Block[] = page.blocks;
export const prose: string = page.prose;

/** The one TypeScript block under a heading. */
export function blockUnder(heading: string): string {
  return page.blockUnder(heading);
}
