import { copyFile, writeFile } from "node:fs/promises";
import { join, posix } from "node:path";
import { afterAll, beforeAll, describe, expect, test, vi } from "vitest";
import { Page } from "../docs/page.ts";
import { freshUser } from "../support/ids.ts";
import { sharedRedisPort } from "../support/redis-server.ts";
import { Consumers, ownVersions, type Project } from "./consumer-project.ts";

// An install with an empty npm cache takes as long as the registry does.
vi.setConfig({ testTimeout: 900_000, hookTimeout: 900_000 });

/** With `TEST_HEAVY=all`, as in the workflow, every compiler resolves modules in each way. */
const isWhole = process.env["TEST_HEAVY"] === "all";
const newest = "typescript";
const others: Readonly<Record<string, string>> = {
  "typescript-5.0": "npm:typescript@5.0.4",
  ...(isWhole && {
    "typescript-5.9": "npm:typescript@5.9.3",
    "typescript-6.0": "npm:typescript@6.0.3",
  }),
};
const compilers = [...Object.keys(others), newest];

/** The versions of node-redis that are told apart. */
const nodeRedisVersions = ["4.7.1", "5.12.1", "6.1.0", "6.2.0"];

/** Of everything that a project of these tests needs, so that npm installs once. */
const packages = {
  ...ownVersions("express", "koa", "fastify", "ioredis", "redis", "@opentelemetry/api"),
  ...ownVersions("@types/express", "@types/koa", "@types/node", newest),
  ...others,
  ...Object.fromEntries(nodeRedisVersions.map((each) => [`redis-${each}`, `npm:redis@${each}`])),
  jest: "^30.0.0",
  "jest-environment-jsdom": "^30.0.0",
  sinon: "^22.0.0",
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

test("the tarball takes at most 1.65 MB of a disk, and has no maps", () => {
  expect(consumers.unpackedSize).toBeLessThan(1_650_000);
  expect([...consumers.files].filter((file) => file.endsWith(".map"))).toEqual([]);
});

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
  const project = await consumers.install("esm", { type: "module", packages });
  const printed = await project.node(["main.js"], redisEnv());
  expect(JSON.parse(printed)).toEqual(oneOrderEach);

  const shown = await project.submitLock(["show", freshUser()], redisEnv());
  expect(shown).toEqual({ code: 0, stdout: expect.stringContaining("is not locked"), stderr: "" });
});

/** 200 MB to fetch. */
describe.runIf(isWhole)("the ES module project", () => {
  test("runs on Bun and on Deno", async () => {
    const runtimes = { bun: "^1.4.0", deno: "^2.9.0" };
    const used = { type: "module", packages: { ...packages, ...runtimes } } as const;
    const project = await consumers.install("esm", used, "other-runtimes");
    await project.rebuild(Object.keys(runtimes));
    for (const [name, ...args] of [["bun"], ["deno", "run", "-A", "--node-modules-dir=manual"]]) {
      const ended = await project.bin(name as string, [...args, "main.js"], redisEnv());
      expect(JSON.parse(ended.stdout || "0"), ended.stderr).toEqual(oneOrderEach);
    }
  });

  test.each(["22", "24"])("runs on Node %s", async (version) => {
    const project = await consumers.install("esm", { type: "module", packages }, `node-${version}`);
    const printed = await project.node(["main.js"], redisEnv(), version);
    expect(JSON.parse(printed)).toEqual(oneOrderEach);
  });
});

test("a CommonJS project protects Express, Koa, Fastify and handlers of fetch", async () => {
  const project = await consumers.install("commonjs", { type: "commonjs", packages });
  const printed = await project.node(["main.js"], redisEnv());
  expect(JSON.parse(printed)).toEqual(oneOrderEach);
});

test("a Jest 30 project in CommonJS runs its tests", async () => {
  const project = await consumers.install("jest", { type: "commonjs", packages });
  await project.node(["node_modules/jest/bin/jest.js", "--ci"]);
});

test("the core and the adapters run without any peer, and import and require give one copy", async () => {
  const project = await consumers.link("bare", "module");
  expect(JSON.parse(await project.node(["main.mjs"]))).toEqual({
    outcomes: ["acquired", "contended", "released"],
    adapters: ["function", "function", "object", "object"],
    // In Node's own words.
    table: 'CREATE TABLE "submissions" (',
    withoutApi: expect.stringMatching(/^Cannot find package '@opentelemetry\/api' imported from/),
    oneCopy: true,
  });

  // The commands need it, and say how to get it.
  expect(await project.submitLock(["--help"])).toMatchObject({ code: 0, stderr: "" });
  const { code, stdout, stderr } = await project.submitLock(["show", "42"], redisEnv());
  expect({ code, stdout }).toEqual({ code: 2, stdout: "" });
  expect(stderr).toContain(
    "neither ioredis nor redis is installed. Install one with: npm install ioredis",
  );
});

test("the commands run in a CommonJS project with ioredis 5, also on its own lock", async () => {
  const project = await consumers.link("shell", "commonjs", { ioredis: "ioredis5" });
  const env = redisEnv();
  for (const [where, prefix] of [
    [[], "lock:submit:"],
    [["--config", "lock.js"], "lock:shell:"],
  ] as const) {
    const listed = await project.submitLock(["list", "--limit", "1", ...where], env);
    expect(listed).toMatchObject({ code: 0, stderr: "" });
    expect(listed.stdout).toContain(`${prefix} on database 0 of 127.0.0.1:`);
  }
  const examined = await project.answered(["doctor"], env);
  expect(examined.stderr).toBe("");
  expect(examined.stdout).toContain("acquire, extend and release of a lock work");

  // Redis lets the user of the shop's lock in without a password, and refuses this one.
  const refused = { ...env, REDIS_URL: `redis://nobody:bad@127.0.0.1:${sharedRedisPort()}` };
  for (const command of [["show", "42"], ["list"], ["answers", "42"], ["doctor"]]) {
    const ended = await project.submitLock(command, refused);
    expect(ended).toMatchObject({ code: 4, stdout: "" });
    expect(ended.stderr).toContain("rejected the user name or password");
  }
});

describe("TypeScript", () => {
  const strict = ["--noEmit", "--strict", "--exactOptionalPropertyTypes", "--target", "es2022"];
  const modes = {
    nodenext: ["--module", "nodenext"],
    node16: ["--module", "node16"],
    bundler: ["--module", "esnext", "--moduleResolution", "bundler"],
  };
  type Mode = keyof typeof modes;

  let project: Project;
  beforeAll(async () => {
    project = await consumers.install("typescript", { type: "module", packages });
    for (const name of ["shop", "node-redis"]) {
      await copyFile(join(project.folder, `${name}.mts`), join(project.folder, `${name}.cts`));
    }
  });

  const tsc = (compiler: string, ...args: string[]): Promise<string> =>
    project.node([join("node_modules", compiler, "bin", "tsc"), ...args, "--types", "node"]);

  const ways = compilers.flatMap((compiler) =>
    (Object.keys(modes) as Mode[])
      .filter((mode) => isWhole || compiler === newest || mode === "nodenext")
      .map((mode) => ({ compiler, mode })),
  );

  test.each(ways)("$compiler finds the declarations free of errors under $mode", async (way) => {
    const { compiler, mode } = way;
    // Those of Node.js and of the core are too new for it.
    const files = compiler === "typescript-5.0" ? ["page.mts"] : ["page.mts", "core.mts"];
    await tsc(compiler, ...strict, ...modes[mode], ...files);
  });

  test.each(ways)("$compiler compiles a shop under $mode", async ({ compiler, mode }) => {
    // An inline handler has the route's types from 5.9 on.
    const names = compiler === "typescript-5.0" ? ["node-redis"] : ["node-redis", "shop"];
    // A bundler knows one kind of module; Node's modes are also tried from CommonJS.
    const kinds = mode === "bundler" ? ["mts"] : ["mts", "cts"];
    const files = names.flatMap((name) => kinds.map((kind) => `${name}.${kind}`));
    await tsc(compiler, ...strict, "--esModuleInterop", "--skipLibCheck", ...modes[mode], ...files);
  });

  test.each(Object.keys(others).filter((name) => name !== "typescript-6.0"))(
    "%s compiles an older project, with `module: commonjs` and nothing about resolution, and it runs",
    async (compiler) => {
      const manifest = { type: "commonjs", packages } as const;
      const older = await consumers.install("older-typescript", manifest);
      await older.node([join("node_modules", compiler, "bin", "tsc")]);
      const printed = await older.node(["shop.js"], redisEnv());
      expect(JSON.parse(printed)).toEqual({ onExpress: [201, 409] });
    },
  );
});

test("clients of node-redis are taken from 6.2 on, and refused below", async () => {
  const several = await consumers.install("node-redis", { type: "module", packages });
  const text = `import { RedisStore } from "submit-lock";
    const told = {};
    for (const version of ${JSON.stringify(nodeRedisVersions)}) {
      const redis = await import("redis-" + version);
      const clients = {
        one: () => redis.createClient(),
        cluster: () => redis.createCluster({ rootNodes: [{ url: "redis://127.0.0.1:1" }] }),
        pool: () => redis.createClientPool(),
        sentinel: () => redis.createSentinel({ name: "shop", sentinelRootNodes: [{ host: "127.0.0.1", port: 1 }] }),
      };
      for (const [kind, open] of Object.entries(clients)) {
        if (version.startsWith("4") && kind !== "one" && kind !== "cluster") continue;
        try {
          new RedisStore(open());
          told[version + " " + kind] = "taken";
        } catch ({ code, message }) {
          told[version + " " + kind] = code + " " + message.split(", got ")[1];
        }
      }
    }
    console.log(JSON.stringify(told));
    process.exit();`;
  await writeFile(join(several.folder, "versions.js"), text);
  const refused = (what: string) => expect.stringMatching(`^SUBMIT_LOCK_INVALID_OPTION ${what}`);
  const unusable = (version: string) => ({
    [`${version} pool`]: refused("a pool of node-redis, "),
    [`${version} sentinel`]: refused("node-redis' Sentinel client, "),
  });
  expect(JSON.parse(await several.node(["versions.js"]))).toEqual({
    "4.7.1 one": refused("node-redis 4 or older, "),
    "4.7.1 cluster": refused("node-redis 4 or older, "),
    "5.12.1 one": refused("node-redis 5, "),
    "5.12.1 cluster": refused("node-redis 5, "),
    ...unusable("5.12.1"),
    "6.1.0 one": refused("node-redis 5, 6.0 or 6.1"),
    "6.1.0 cluster": refused("node-redis 5, 6.0 or 6.1"),
    ...unusable("6.1.0"),
    "6.2.0 one": "taken",
    "6.2.0 cluster": "taken",
    ...unusable("6.2.0"),
  });
});
