import { spawnSync } from "node:child_process";
import { fileURLToPath } from "node:url";
import { gzipSync } from "node:zlib";
import { describe, expect, test } from "vitest";
import { bundled } from "../../support/page.ts";

const ROOT = fileURLToPath(new URL("../../..", import.meta.url));
const room = `${ROOT}/src/browser`;

describe("submit-lock/browser", () => {
  test("has at most 2.5 kB, minified and gzipped", () => {
    expect(gzipSync(bundled(), { level: 9 }).length).toBeLessThan(2_550);
  });

  test("imports nothing and says nothing of Node in its bundle", () => {
    expect(bundled()).not.toMatch(/\bimport\b|\brequire\b|\bprocess\b|\bBuffer\b/);
  });

  // The rest of `src` knows Node's types and not the browser's.
  test("agrees with the types of the DOM, and needs none of Node", () => {
    const options = [
      ..."--ignoreConfig --noEmit --strict --exactOptionalPropertyTypes".split(" "),
      ..."--noUncheckedIndexedAccess --allowImportingTsExtensions --target es2022".split(" "),
      ..."--module nodenext --lib es2022,dom --types".split(" "),
      "",
    ];
    const tsc = `${ROOT}/node_modules/typescript/bin/tsc`;
    const { stdout } = spawnSync(process.execPath, [tsc, ...options, `${room}/index.ts`], {
      encoding: "utf8",
      cwd: ROOT,
    });
    expect(stdout).toBe("");
  });
});
