import { readdirSync, readFileSync } from "node:fs";
import { join } from "node:path";
import { describe, expect, test } from "vitest";
import { ROOT } from "../../docs/page.ts";

const folder = join(ROOT, ".github/workflows");
const workflows = readdirSync(folder).map((file) => ({
  file,
  text: readFileSync(join(folder, file), "utf8"),
}));

describe.each(workflows)("the workflow $file", ({ file, text }) => {
  test("pins every action by a commit, and says which version that is", () => {
    const uses = [...text.matchAll(/uses: (.*)$/gm)].map(([, action]) => action as string);
    expect(uses.length).toBeGreaterThan(0);
    for (const action of uses)
      expect(action).toMatch(/^[\w-]+\/[\w-]+@[0-9a-f]{40} # v\d+\.\d+\.\d+$/);
  });

  test("has no more rights than it says, and reads the code at most", () => {
    expect(text).toMatch(/^permissions:\n {2}contents: read\n/m);
    const others = file === "site.yml" ? /(id-token|pages): write$/ : /id-token: write$/;
    const written = [...text.matchAll(/[\w-]+: write\b/g)].map(([right]) => right);
    for (const right of written) expect(right).toMatch(others);
  });

  test("runs only commands that there are", () => {
    const { scripts } = JSON.parse(readFileSync(join(ROOT, "package.json"), "utf8"));
    for (const [, name] of text.matchAll(/npm run ([\w:-]+)/g)) {
      expect(Object.keys(scripts)).toContain(name);
    }
  });
});

test("the release invents no address: the forge tells it", () => {
  const release = readFileSync(join(folder, "release.yml"), "utf8");
  expect(release).toContain("$GITHUB_SERVER_URL/$GITHUB_REPOSITORY");
  expect(release).toContain("npm publish --provenance");
  const manifest = JSON.parse(readFileSync(join(ROOT, "package.json"), "utf8"));
  expect(manifest.repository).toBeUndefined();
});

test("the site is published from main alone, by a job that runs nothing of the repository", () => {
  const site = readFileSync(join(folder, "site.yml"), "utf8");
  const [build = "", publish = ""] = site.split(/^ {2}publish:$/m);
  expect(build).not.toContain(": write");
  expect(build).toContain("npm run test:site");
  expect(publish).toContain("if: github.ref == 'refs/heads/main'");
  expect(publish).not.toMatch(/\brun:|actions\/checkout/);
});
