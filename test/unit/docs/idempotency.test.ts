import { describe, expect, test } from "vitest";
import { resolveIdempotencyOptions } from "../../../src/http/options.ts";
import { isStored, resolveStoredHeaders } from "../../../src/http/stored-answer.ts";
import { page } from "../../docs/page.ts";
import { codesOfAnswers, foundInSources, membersOf } from "./sources.ts";

const reference = page("docs/reference/idempotency.md");
const guide = page("docs/guide/once.md");

/** The first column of a table, without its backticks. */
function namesIn(rows: string[][]): string[] {
  return rows.map(([name = ""]) => name.replaceAll("`", ""));
}

function numbersIn(text: string): number[] {
  return (text.match(/\b\d{1,3}(?: \d{3})*\b/g) ?? []).map((each) =>
    Number(each.replaceAll(" ", "")),
  );
}

describe("the reference of idempotency", () => {
  const options = new Map(
    reference
      .tableUnder("Options of `idempotency`")
      .map(([name = "", preset = "", meaning = ""]) => [
        name.replaceAll("`", ""),
        { preset, meaning },
      ]),
  );

  test("names every option, and no other", () => {
    expect([...options.keys()]).toEqual(membersOf("IdempotencyOptions"));
  });

  test.each(["retainMs", "maxBodyBytes", "waitMs"] as const)("has the bounds of %s", (name) => {
    const { preset = "", meaning = "" } = options.get(name) ?? {};
    const [least = Number.NaN, most = Number.NaN] = numbersIn(meaning);
    expect(resolveIdempotencyOptions({}, 0)[name]).toBe(numbersIn(preset)[0]);
    for (const bound of [least, most]) {
      expect(resolveIdempotencyOptions({ [name]: bound }, 0)[name]).toBe(bound);
    }
    for (const beyond of [least - 1, most + 1]) {
      expect(() => resolveIdempotencyOptions({ [name]: beyond }, 0)).toThrow(name);
    }
  });

  test.each(["key", "store"] as const)("has the default of %s", (name) => {
    expect(`\`"${resolveIdempotencyOptions({}, 0)[name]}"\``).toBe(options.get(name)?.preset);
  });

  test('has the statuses that store "final" does not keep', () => {
    const { meaning = "" } = options.get("store") ?? {};
    const listed = (meaning.match(/\b4\d\d\b/g) ?? []).map(Number);
    const statuses = Array.from({ length: 100 }, (_, i) => 400 + i);
    const passing = statuses.filter((status) => !isStored("final", { status, headers: {} }));
    expect(listed).toEqual(passing);
  });

  test("has every stored header, and each that is never stored", () => {
    const [kept = [], never = []] = reference
      .tableUnder("Stored headers")
      .map(([, names = ""]) =>
        [...names.matchAll(/`([a-z-]+)`/g)].map(([, name]) => name as string),
      );
    expect(kept).toEqual([...resolveStoredHeaders(undefined)]);
    expect(never.length).toBeGreaterThan(10);
    for (const name of never) {
      expect(() => resolveStoredHeaders([name])).toThrow("never repeated");
    }
    const list = foundInSources(/const never = new Set\(\[(.*?)\]\)/s);
    expect(never).toEqual([...list.matchAll(/"([a-z-]+)"/g)].map(([, name]) => name));
  });

  test("names every member of a submission", () => {
    const names = namesIn(reference.tableUnder("In the handler"));
    expect(names.map((name) => name.replace("()", ""))).toEqual(["id", "source", "doNotStore"]);
  });
});

describe("the paragraph for a shop's own documentation", () => {
  const paragraph = guide.prose.match(/^> .*$/gm)?.join("\n") ?? "";

  test("tells how long answers are kept, and every code", () => {
    expect(numbersIn(paragraph)).toContain(resolveIdempotencyOptions({}, 0).retainMs);
    const codes = codesOfAnswers.filter((code) => code.startsWith("idempotency_"));
    for (const code of codes) expect(paragraph).toContain(`\`${code}\``);
  });
});
