import { copyFile } from "node:fs/promises";
import { join, posix } from "node:path";
import { afterAll, beforeAll, describe, expect, test } from "vitest";
import { Page } from "../docs/page.ts";
import { freshUser } from "../support/ids.ts";
import { sharedRedisPort } from "../support/redis-server.ts";
import { Consumers, ownVersions, type Project } from "./consumer-project.ts";

const PEERS = ownVersions("express", "koa", "fastify", "ioredis", "redis", "@opentelemetry/api");
const EVERYTHING = {
  ...PEERS,
  ...ownVersions("@types/express", "@types/koa", "@types/node", "typescript"),
  "typescript-6.0": "npm:typescript@6.0.3",
  "typescript-5.9": "npm:typescript@5.9.3",
  "typescript-5.0": "npm:typescript@5.0.4",
};

/** Of two clicks on each framework. */
const oneOrderEach = {
  onExpress: [201, 409],
  onKoa: [201, 409],
  onFastify: [201, 409],
  onFetch: [201, 409],
};

let consumers: Consumers;
beforeAll(async () => {
  consumers = await Consumers.pack();
});
afterAll(() => consumers?.remove());

function redisEnv(): Record<string, string> {
  return { REDIS_URL: `redis://127.0.0.1:${sharedRedisPort()}`, TEST_USER: freshUser() };
}

test("no page in the tarball shows or links a file that is not in it", () => {
  const files = [...consumers.files].filter((file) => file.endsWith(".md"));
  expect(files).toContain("README.md");
  const dead = files.flatMap((file) => {
    const page = new Page(file);
    const pictures = [...page.prose.matchAll(/ src(?:set)?="([^"]+)"/g)].map(([, path]) => path);
    return [...page.links.map(({ target }) => target), ...(pictures as string[])]
      .filter((target) => !/^(https:|#)/.test(target))
      .map((target) => posix.join(posix.dirname(file), target.split("#")[0] as string))
      .filter((target) => !consumers.files.has(target))
      .map((target) => `${file}: ${target}`);
  });
  expect(dead).toEqual([]);
});

test("an ES module project protects Express, Koa, Fastify and handlers of fetch", async () => {
  const project = await consumers.install("esm", { type: "module", packages: EVERYTHING });
  const printed = await project.node(["main.js"], redisEnv());
  expect(JSON.parse(printed)).toEqual(oneOrderEach);

  const user = freshUser();
  const shown = await project.bin("submit-lock", ["show", user], redisEnv());
  expect(shown).toEqual({ code: 0, stdout: expect.stringContaining("is not locked"), stderr: "" });
});

test("a CommonJS project protects Express, Koa, Fastify and handlers of fetch", async () => {
  const project = await consumers.install("commonjs", { type: "commonjs", packages: EVERYTHING });
  const printed = await project.node(["main.js"], redisEnv());
  expect(JSON.parse(printed)).toEqual(oneOrderEach);
});

test("a Jest 30 project in CommonJS runs its tests", async () => {
  const packages = { ...ownVersions("express", "fastify"), jest: "^30.0.0" };
  const project = await consumers.install("jest", { type: "commonjs", packages });
  await project.node(["node_modules/jest/bin/jest.js", "--ci"]);
});

test("the core runs without any peer, and import and require give one copy", async () => {
  const project = await consumers.install("bare", { type: "module", packages: {} });
  expect([...Object.keys(PEERS), "uuid"].filter((name) => project.has(name))).toEqual(["uuid"]);
  expect(JSON.parse(await project.node(["main.mjs"]))).toEqual({
    outcomes: ["acquired", "contended", "released"],
    // In Node's own words.
    withoutApi: expect.stringMatching(/^Cannot find package '@opentelemetry\/api' imported from/),
    oneCopy: true,
  });

  // The commands need it, and say how to get it.
  const help = await project.bin("submit-lock", ["--help"]);
  expect(help).toMatchObject({ code: 0, stderr: "" });
  for (const args of [["show", "42"], ["doctor"]]) {
    const { code, stdout, stderr } = await project.bin("submit-lock", args, redisEnv());
    expect({ code, stdout }).toEqual({ code: 2, stdout: "" });
    expect(stderr).toContain(
      "neither ioredis nor redis is installed. Install one with: npm install ioredis",
    );
  }
});

test("the commands run in a CommonJS project with ioredis 5, also on its own lock", async () => {
  const packages = { ioredis: ownVersions("ioredis5")["ioredis5"] as string };
  const project = await consumers.install("shell", { type: "commonjs", packages });
  const env = redisEnv();
  const user = freshUser();
  for (const where of [[], ["--config", "lock.js"]]) {
    const shown = await project.bin("submit-lock", ["show", user, ...where], env);
    expect(shown).toEqual({
      code: 0,
      stdout: expect.stringContaining("is not locked"),
      stderr: "",
    });
    const listed = await project.bin("submit-lock", ["list", "--limit", "1", ...where], env);
    expect(listed).toMatchObject({ code: 0, stderr: "" });
    const prefix = where.length === 0 ? "lock:submit:" : "lock:shell:";
    expect(listed.stdout).toContain(`${prefix} on database 0 of 127.0.0.1:`);
  }
  const examined = await project.bin("submit-lock", ["doctor"], env);
  expect(examined.stderr).toBe("");
  expect(examined.stdout).toContain("acquire, extend and release of a lock work");
});

describe("a TypeScript project", () => {
  let project: Project;
  beforeAll(async () => {
    project = await consumers.install("typescript", { type: "module", packages: EVERYTHING });
    await copyFile(join(project.folder, "shop.mts"), join(project.folder, "shop.cts"));
  });

  const strict = ["--noEmit", "--strict", "--exactOptionalPropertyTypes", "--types", "node"];
  const loose = [...strict, "--esModuleInterop", "--skipLibCheck", "--target", "es2022"];
  const modes = {
    nodenext: ["--module", "nodenext"],
    node16: ["--module", "node16"],
    bundler: ["--module", "esnext", "--moduleResolution", "bundler"],
  };

  const tsc = (compiler: string, ...args: string[]): Promise<string> =>
    project.node([join("node_modules", compiler, "bin", "tsc"), ...args]);

  const compilers = ["typescript-5.0", "typescript-5.9", "typescript-6.0", "typescript"];
  test.each(compilers)("finds the browser's half with %s, each way", async (compiler) => {
    for (const mode of Object.values(modes)) {
      await tsc(compiler, ...strict, "--target", "es2022", ...mode, "page.mts");
    }
  });

  // Each way to resolve a module is tried with the newest compiler.
  describe.each([
    { compiler: "typescript", ways: ["nodenext", "node16", "bundler"] },
    { compiler: "typescript-5.9", ways: ["nodenext"] },
  ] as const)("with $compiler", ({ compiler, ways }) => {
    test.each(ways)("compiles under %s", async (mode) => {
      // A bundler knows one kind of module; Node's modes are also tried from CommonJS.
      const files = mode === "bundler" ? ["shop.mts"] : ["shop.mts", "shop.cts"];
      await tsc(compiler, ...loose, ...modes[mode], ...files);
    });

    test("finds the declarations themselves free of errors", async () => {
      await tsc(compiler, ...strict, "--target", "es2022", ...modes.nodenext, "core.mts");
    });
  });
});

describe("an older TypeScript project, with `module: commonjs` and nothing about resolution", () => {
  let project: Project;
  beforeAll(async () => {
    const manifest = { type: "commonjs", packages: EVERYTHING } as const;
    project = await consumers.install("older-typescript", manifest);
  });

  test.each(["5.9", "5.0"])("compiles with TypeScript %s and runs", async (version) => {
    await project.node([join("node_modules", `typescript-${version}`, "bin", "tsc")]);
    const printed = await project.node(["shop.js"], redisEnv());
    expect(JSON.parse(printed)).toEqual(oneOrderEach);
  });
});
