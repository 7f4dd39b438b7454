import { existsSync, readdirSync, readFileSync } from "node:fs";
import { join } from "node:path";
import { describe, expect, test } from "vitest";
import { blocks, prose, ROOT, readme } from "../../docs/readme.ts";

const sources = readdirSync(join(ROOT, "src"), { recursive: true, encoding: "utf8" })
  .filter((file) => file.endsWith(".ts"))
  .map((file) => readFileSync(join(ROOT, "src", file), "utf8"))
  .join("\n");

function inSources(pattern: RegExp): string[] {
  return [...new Set([...sources.matchAll(pattern)].map(([match]) => match))].sort();
}

/** The members of an interface, without its comments. */
function membersOf(name: string): string[] {
  const body = new RegExp(`interface ${name}\\b[^{]*{(.*?)^}`, "ms").exec(sources)?.[1];
  if (body === undefined) throw new Error(`no interface ${name}`);
  return [...body.matchAll(/^ {2}readonly (\w+)\??:/gm)].map(([, member]) => member as string);
}

/** The link target that a forge makes of a heading. */
function anchorOf(heading: string): string {
  const text = heading.toLowerCase().replace(/[^\p{L}\p{N} _-]/gu, "");
  return `#${text.replaceAll(" ", "-")}`;
}

describe("the README", () => {
  test.each(["SubmitLockOptions", "GuardOptions", "WithLockOptions", "CloseOptions"])(
    "names every option of %s",
    (name) => {
      const options = membersOf(name);
      expect(options.length).toBeGreaterThan(0);
      for (const option of options) expect(readme).toContain(`\`${option}\``);
    },
  );

  test("names every option of a guard", () => {
    const names = /const names = \[\s*("lock",.*?)\]/s.exec(sources)?.[1] ?? "";
    const options = [...names.matchAll(/"(\w+)"/g)].map(([, name]) => name as string);
    expect(options.length).toBeGreaterThan(4);
    for (const option of options) expect(readme).toContain(`| \`${option}\` |`);
  });

  test("names every error code, and no other", () => {
    const codes = inSources(/SUBMIT_LOCK_[A-Z_]+/g);
    expect(codes.length).toBeGreaterThan(8);
    expect([...new Set(readme.match(/SUBMIT_LOCK_[A-Z_]+/g))].sort()).toEqual(codes);
  });

  test("names every code of a response, and no other", () => {
    const codes = inSources(/(?<=")submit_[a-z]+(?=")/g);
    expect(codes).toHaveLength(3);
    expect([...new Set(readme.match(/\bsubmit_[a-z]+/g))].sort()).toEqual(codes);
  });

  test("names every channel, and no other", () => {
    const channels = inSources(/(?<=")submit-lock:[a-z]+(?=")/g);
    expect(channels).toHaveLength(4);
    expect([...new Set(readme.match(/\bsubmit-lock:[a-z]+/g))].sort()).toEqual(channels);
  });

  test.each([
    ["submit-lock:acquire", "AcquireMessage"],
    ["submit-lock:release", "ReleaseMessage"],
    ["submit-lock:lost", "LostMessage"],
    ["submit-lock:retire", "RetireMessage"],
  ])("names what the messages of %s hold", (channel, message) => {
    const row = readme.split("\n").find((line) => line.startsWith(`| \`${channel}\` |`));
    for (const member of membersOf(message)) expect(row).toContain(`\`${member}\``);
  });

  test("has a target for every link", () => {
    const anchors = [...prose.matchAll(/^#+ (.*)$/gm)].map(([, heading]) =>
      anchorOf(heading ?? ""),
    );
    expect(new Set(anchors).size).toBe(anchors.length);
    const links = [...prose.matchAll(/\]\(([^)]+)\)/g)].map(([, target]) => target as string);
    expect(links.length).toBeGreaterThan(10);
    for (const link of links) {
      if (link.startsWith("#")) expect(anchors).toContain(link);
      else expect(existsSync(join(ROOT, link)), link).toBe(true);
    }
  });

  test("names only commands that there are", () => {
    const { scripts } = JSON.parse(readFileSync(join(ROOT, "package.json"), "utf8"));
    const named = [...readme.matchAll(/\bnpm (?:run )?(\w[\w:]*)/g)].map(([, name]) => name);
    for (const name of named) {
      if (name !== "ci" && name !== "install") expect(Object.keys(scripts)).toContain(name);
    }
  });

  test("names only files that there are", () => {
    const files = readme.match(/`(src|examples)\/[\w/.-]+`/g) ?? [];
    expect(files.length).toBeGreaterThan(0);
    for (const file of files) expect(existsSync(join(ROOT, file.slice(1, -1))), file).toBe(true);
  });

  test("begins with the two commands", () => {
    expect(blocks[0]?.code).toBe("npm ci && npm run demo\nnpm ci && npm test\n");
  });
});
