import { build } from "esbuild";

const common = { entryPoints: ["shop.js"], bundle: true, platform: "node", target: "node20" };

await build({ ...common, format: "cjs", outfile: "out/shop.cjs" });
await build({
  ...common,
  format: "esm",
  outfile: "out/shop.mjs",
  // Express and ioredis are CommonJS: in an ES module their `require("node:…")` needs one.
  banner: {
    js: 'import { createRequire } from "node:module"; const require = createRequire(import.meta.url);',
  },
});
await build({ ...common, format: "cjs", outfile: "out/shop.min.cjs", minify: true });
// Without the banner, to see what becomes of it.
await build({ ...common, format: "esm", outfile: "out/shop.bare.mjs" });
