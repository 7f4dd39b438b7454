import { expect, test } from "vitest";
import { documents, type Page } from "../../docs/page.ts";

/** What is shorter is a label, a type or a phrase that a reference needs at more than one place. */
const fewestWords = 8;

/** The sentences of a page, as they read: without marks, links and case. Each cell is one at least. */
function sentencesOf({ prose }: Page): Set<string> {
  const paragraphs = prose
    .replace(/<br>/g, "\n")
    .split(/\n(?=\s*(?:[-*#>|]|\d+\. )|\n)/)
    .flatMap((part) => (part.trimStart().startsWith("|") ? part.split(/(?<!\\)\|/) : [part]));
  const sentences = paragraphs
    .map((part) => part.replace(/!?\[([^\]]*)\]\([^)]*\)/g, "$1").replace(/[`*_>#]/g, ""))
    .flatMap((part) => part.split(/(?<=[.!?:;])\s+/))
    .map((part) => part.toLowerCase().match(/[\p{L}\p{N}]+/gu) ?? [])
    .filter((words) => words.length >= fewestWords);
  return new Set(sentences.map((words) => words.join(" ")));
}

test("sentences are found in tables, lists and paragraphs", () => {
  const [first] = documents;
  const page = { ...first, prose: "" } as Page;
  const found = sentencesOf({
    ...page,
    prose:
      "| a | One two three `four` five six seven eight. |\n\n- Nine ten [eleven](x.md) twelve thirteen fourteen fifteen\n  sixteen. Short one.",
  } as Page);
  expect([...found]).toEqual([
    "one two three four five six seven eight",
    "nine ten eleven twelve thirteen fourteen fifteen sixteen",
  ]);
});

test("no sentence stands in two documents", () => {
  const places = new Map<string, string[]>();
  for (const page of documents) {
    for (const sentence of sentencesOf(page)) {
      places.set(sentence, [...(places.get(sentence) ?? []), page.file]);
    }
  }
  expect(places.size).toBeGreaterThan(500);
  const twice = [...places].filter(([, files]) => files.length > 1);
  expect(twice.map(([sentence, files]) => `${files.join(", ")}: ${sentence}`)).toEqual([]);
});
