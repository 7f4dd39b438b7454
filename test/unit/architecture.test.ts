import { readdirSync, readFileSync } from "node:fs";
import { join, posix } from "node:path";
import { fileURLToPath } from "node:url";
import { describe, expect, test } from "vitest";

const ROOT = fileURLToPath(new URL("../..", import.meta.url));

/** Files directly in `src`, which serve every room. */
const LEAF = /^(?!index\.ts$)[\w-]+\.ts$/;
/** What of the lock the HTTP rooms may know. */
const FACE =
  /^lock\/(channels|lease|on-call|record|submission|submit-key|submit-lock|waiting)\.ts$/;
const NODE = /^node:(?!(https?|http2|net|tls)$)/;

/** Each room, the files of the other rooms that it may import, and the packages. */
const ROOMS: Record<string, { of: RegExp; files: RegExp[]; packages: RegExp[] }> = {
  leaf: { of: LEAF, files: [LEAF], packages: [NODE] },
  index: { of: /^index\.ts$/, files: [LEAF, /^(lock|stores)\//], packages: [] },
  lock: { of: /^lock\//, files: [LEAF], packages: [NODE, /^uuid$/] },
  stores: {
    of: /^stores\/(?!redis\/clients\/)/,
    files: [LEAF, /^lock\/store\.ts$/, /^stores\/redis\/clients\//],
    packages: [NODE],
  },
  clients: {
    of: /^stores\/redis\/clients\//,
    files: [LEAF],
    packages: [NODE, /^ioredis$/, /^redis$/],
  },
  cli: { of: /^cli\//, files: [LEAF, /^(lock|stores)\//], packages: [NODE] },
  http: { of: /^http\//, files: [LEAF, FACE], packages: [NODE] },
  node: { of: /^node\//, files: [LEAF, FACE, /^http\//], packages: [/^node:/] },
  express: {
    of: /^express\//,
    files: [LEAF, FACE, /^(http|node)\//],
    packages: [/^node:/, /^express$/],
  },
  koa: { of: /^koa\//, files: [LEAF, FACE, /^(http|node)\//], packages: [/^node:/, /^koa$/] },
  fastify: {
    of: /^fastify\//,
    files: [LEAF, FACE, /^(http|node)\//],
    packages: [/^node:/, /^fastify$/],
  },
  fetch: { of: /^fetch\//, files: [LEAF, FACE, /^http\//], packages: [NODE] },
  browser: { of: /^browser\//, files: [], packages: [] },
  opentelemetry: {
    of: /^opentelemetry\//,
    files: [LEAF, /^lock\/(channels|on-call)\.ts$/],
    packages: [NODE, /^@opentelemetry\/api$/],
  },
};

const files = readdirSync(join(ROOT, "src"), { recursive: true, encoding: "utf8" })
  .map((file) => file.replaceAll("\\", "/"))
  .filter((file) => file.endsWith(".ts"))
  .sort();

/** What each file imports, types and re-exports too: files of `src`, and names of packages. */
const graph = new Map(files.map((file) => [file, importsOf(file)]));

function importsOf(file: string): string[] {
  const source = readFileSync(join(ROOT, "src", file), "utf8");
  const statement =
    /^(?:(?:import|export)\b[^;]*?\sfrom |import )"([^"]+)";|\bimport\("([^"]+)"\)/gm;
  const specifiers = source.matchAll(statement);
  return [...specifiers].map(([, given, dynamic]) => resolved(file, (given ?? dynamic) as string));
}

function resolved(file: string, specifier: string): string {
  return specifier.startsWith(".") ? posix.join(posix.dirname(file), specifier) : specifier;
}

function roomOf(file: string): string {
  const found = Object.entries(ROOMS).filter(([, { of }]) => of.test(file));
  if (found.length !== 1) throw new Error(`src/${file} is in no room that has rules`);
  return (found[0] as [string, unknown])[0];
}

function mayImport(room: string, target: string): boolean {
  const { of, files, packages } = ROOMS[room] as (typeof ROOMS)[string];
  const allowed = target.endsWith(".ts") ? [of, ...files] : packages;
  // An entry point is for users; within the package it would make circles.
  return posix.basename(target) !== "index.ts" && allowed.some((pattern) => pattern.test(target));
}

const drawing = [...graph]
  .map(([file, targets]) => `${file} -> ${targets.join(", ") || "nothing"}`)
  .join("\n");

describe("the imports of src", () => {
  test("are all found", () => {
    const targets = [...graph.values()].flat();
    for (const target of targets) if (target.endsWith(".ts")) expect(files).toContain(target);
    const source = files.map((file) => readFileSync(join(ROOT, "src", file), "utf8")).join("\n");
    expect(targets).toHaveLength([...source.matchAll(/\bfrom "|\bimport\("/g)].length);
  });

  test("point down only, from a room to what it may know", () => {
    const up = [...graph].flatMap(([file, targets]) =>
      targets
        .filter((target) => !mayImport(roomOf(file), target))
        .map((target) => `${file} -> ${target}`),
    );
    expect(up, drawing).toEqual([]);
  });
});

test("no file of src is longer than 350 lines", () => {
  const long = files.filter((file) => {
    return (
      readFileSync(join(ROOT, "src", file), "utf8")
        .trimEnd()
        .split("\n").length > 350
    );
  });
  expect(long).toEqual([]);
});
