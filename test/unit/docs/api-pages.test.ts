import { readFileSync } from "node:fs";
import { join } from "node:path";
import { expect, test } from "vitest";
import { ROOT } from "../../docs/page.ts";

function read(file: string) {
  return JSON.parse(readFileSync(join(ROOT, file), "utf8"));
}

test("the API pages are made of every entry point of the package", () => {
  const { exports } = read("package.json") as { exports: Record<string, unknown> };
  const sources = Object.values(exports)
    .map((each) => /"\.\/dist\/esm\/(.*?)\.d\.ts"/.exec(JSON.stringify(each))?.[1])
    .filter((each) => each !== undefined);
  expect(sources.length).toBeGreaterThan(2);
  expect(read("typedoc.json").entryPoints).toEqual(sources.map((each) => `src/${each}.ts`));
});
