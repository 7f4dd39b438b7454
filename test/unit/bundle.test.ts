import { fileURLToPath } from "node:url";
import { build } from "esbuild";
import { expect, test } from "vitest";

const entry = fileURLToPath(new URL("../../src/index.ts", import.meta.url));

// A bundler fails for an import that it cannot find, even where the code never runs.
test("the package imports neither client: a shop has one of them, or none", async () => {
  const { metafile } = await build({
    entryPoints: [entry],
    bundle: true,
    write: false,
    metafile: true,
    platform: "node",
    packages: "external",
  });
  const imports = Object.values(metafile.inputs).flatMap((input) => input.imports);
  const packages = imports.filter(({ external, path }) => external && !path.startsWith("node:"));
  expect(new Set(packages.map(({ path }) => path))).toEqual(new Set(["uuid"]));
});
