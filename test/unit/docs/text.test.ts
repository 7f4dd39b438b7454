import { existsSync, readFileSync } from "node:fs";
import { dirname, join, posix } from "node:path";
import { describe, expect, test } from "vitest";
import { Page, pages, ROOT } from "../../docs/page.ts";
import { blocks, prose, readme } from "../../docs/readme.ts";
import { codesOfAnswers, foundInSources, inSources, membersOf } from "./sources.ts";

describe("the README", () => {
  test.each([
    "SubmitLockOptions",
    "GuardOptions",
    "IdempotencyOptions",
    "WithLockOptions",
    "CloseOptions",
  ])("names every option of %s", (name) => {
    const options = membersOf(name);
    expect(options.length).toBeGreaterThan(0);
    for (const option of options) expect(readme).toContain(`\`${option}\``);
  });

  test("names every option of a guard", () => {
    const names = foundInSources(/const names = \[\s*("lock",.*?)\]/s);
    const options = [...names.matchAll(/"(\w+)"/g)].map(([, name]) => name as string);
    expect(options.length).toBeGreaterThan(10);
    for (const option of options) expect(readme).toContain(`| \`${option}\` |`);
  });

  test.each(["Anonymous", "Contended", "KeyMissing", "Mismatch", "Replay", "Unavailable"])(
    "names what the info of %s holds",
    (info) => {
      const [given] = /`info\.reason` is .*/.exec(prose) ?? [];
      const members = membersOf(info).filter((name) => name !== "reason");
      for (const member of members) expect(given).toContain(`\`${member}\``);
    },
  );

  test("names every error code, and no other", () => {
    const codes = inSources(/SUBMIT_LOCK_[A-Z_]+/g);
    expect(codes.length).toBeGreaterThan(8);
    expect([...new Set(readme.match(/SUBMIT_LOCK_[A-Z_]+/g))].sort()).toEqual(codes);
  });

  test("names every code of a response, and no other", () => {
    expect(codesOfAnswers).toHaveLength(8);
    const named = readme.match(/\b(submit|idempotency)_[a-z]+(_[a-z]+)*/g);
    expect([...new Set(named)].sort()).toEqual(codesOfAnswers);
    for (const code of codesOfAnswers)
      expect(readme).toMatch(new RegExp(`^\\| \\d+ \\| \`${code}\``, "m"));
  });

  test("names every channel, and no other", () => {
    const channels = inSources(/(?<=")submit-lock:[a-z]+(?=")/g);
    expect(channels).toHaveLength(7);
    expect([...new Set(readme.match(/\bsubmit-lock:[a-z]+/g))].sort()).toEqual(channels);
  });

  test.each([
    ["submit-lock:acquire", "AcquireMessage"],
    ["submit-lock:release", "ReleaseMessage"],
    ["submit-lock:lost", "LostMessage"],
    ["submit-lock:retire", "RetireMessage"],
    ["submit-lock:complete", "CompleteMessage"],
    ["submit-lock:duplicate", "DuplicateMessage"],
    ["submit-lock:replay", "ReplayMessage"],
  ])("names what the messages of %s hold", (channel, message) => {
    const row = readme.split("\n").find((line) => line.startsWith(`| \`${channel}\` |`));
    for (const member of membersOf(message)) expect(row).toContain(`\`${member}\``);
  });

  test.each([
    ["submit-lock:acquire", /outcome: ("acquired" \|.*?);/],
    ["submit-lock:release", /type ReleaseOutcome = (.*?);/],
    ["submit-lock:complete", /type CompleteOutcome = (.*?);/],
    ["submit-lock:retire", /outcome: ("final" \|.*?);/],
    ["submit-lock:lost", /type LostReason = (.*?);/],
  ])("names every outcome of %s", (channel, pattern) => {
    const outcomes = [...foundInSources(pattern).matchAll(/"([a-z-]+)"/g)].map(([, each]) => each);
    expect(outcomes.length).toBeGreaterThan(1);
    const row = readme.split("\n").find((line) => line.startsWith(`| \`${channel}\` |`));
    expect(row).toContain(`\`outcome\` (${outcomes.map((each) => `\`${each}\``).join(", ")})`);
  });

  test("begins with the two commands", () => {
    expect(blocks[0]?.code).toBe("npm ci && npm run demo\nnpm ci && npm test\n");
  });
});

/** The link targets that a forge makes of a page's headings. */
function anchorsOf(page: Page): string[] {
  const headings = [...page.prose.matchAll(/^#+ (.*)$/gm)].map(([, heading]) => heading as string);
  return headings.map((heading) => {
    const text = heading.toLowerCase().replace(/[^\p{L}\p{N} _-]/gu, "");
    return `#${text.replaceAll(" ", "-")}`;
  });
}

const all = [new Page("README.md"), ...pages];
const anchors = new Map(all.map((page) => [page.file, anchorsOf(page)]));

describe.each(all)("$file", (page) => {
  test("has a target for every link", () => {
    const own = anchors.get(page.file) ?? [];
    expect(new Set(own).size).toBe(own.length);
    const links = [...page.prose.matchAll(/\]\(([^)]+)\)/g)].map(([, target]) => target as string);
    for (const link of links.filter((each) => !each.startsWith("https://"))) {
      const [path = "", anchor] = link.split("#");
      const file = path === "" ? page.file : posix.join(dirname(page.file), path);
      expect(existsSync(join(ROOT, file)), link).toBe(true);
      if (anchor !== undefined) expect(anchors.get(file), link).toContain(`#${anchor}`);
    }
  });

  test("names only commands that there are", () => {
    const { scripts } = JSON.parse(readFileSync(join(ROOT, "package.json"), "utf8"));
    const named = [...page.text.matchAll(/\bnpm (?:run )?([a-z][\w:]*)/g)].map(([, name]) => name);
    for (const name of named) {
      if (!["ci", "install", "registry"].includes(name as string)) {
        expect(Object.keys(scripts)).toContain(name);
      }
    }
  });

  test("names only files that there are", () => {
    const files = page.text.match(/`(src|examples|test|docs|bench)\/[\w/.-]+`/g) ?? [];
    for (const file of files) expect(existsSync(join(ROOT, file.slice(1, -1))), file).toBe(true);
  });
});
