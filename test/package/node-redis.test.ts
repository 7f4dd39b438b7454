import { copyFile, writeFile } from "node:fs/promises";
import { join } from "node:path";
import { afterAll, afterEach, beforeAll, describe, expect, test } from "vitest";
import { RedisStore, type SubmitLock } from "../../src/index.ts";
import { everyCommand } from "../support/cli.ts";
import {
  closeClients,
  nodeRedis6,
  nodeRedisCluster6,
  type SharedOptions,
} from "../support/clients.ts";
import { command } from "../support/command.ts";
import { freePort } from "../support/free-port.ts";
import { freshUser } from "../support/ids.ts";
import { closeLocks, leaseOf, openLock } from "../support/locks.ts";
import { startCluster } from "../support/redis-cluster.ts";
import { type RedisServer, sharedRedisPort, startRedis } from "../support/redis-server.ts";
import { certificate, startTls } from "../support/tls.ts";
import { until } from "../support/until.ts";
import { Consumers, ownVersions, type Project } from "./consumer-project.ts";

const compilers: Readonly<Record<string, string>> = {
  ...ownVersions("typescript"),
  "ts-5.0": "npm:typescript@5.0.4",
};

const packages = {
  ...ownVersions("express", "redis", "@types/express", "@types/node"),
  ...compilers,
};

let consumers: Consumers;
let project: Project;
beforeAll(async () => {
  consumers = await Consumers.pack();
  project = await consumers.install("node-redis", { type: "module", packages });
});
afterAll(() => consumers?.remove());

const stops: (() => Promise<void>)[] = [];
afterEach(async () => {
  await closeLocks();
  closeClients();
  for (const stop of stops.splice(0)) await stop();
});

/** Runs a command of the project, which has no other client than node-redis. */
function run(args: readonly string[], redisUrl = "") {
  return project.bin("submit-lock", [...args], { REDIS_URL: redisUrl });
}

describe("a project with node-redis, and without ioredis", () => {
  test.each(["main.mjs", "main.cjs"])("protects Express in %s", async (file) => {
    expect(project.has("ioredis")).toBe(false);
    const env = { REDIS_URL: `redis://127.0.0.1:${sharedRedisPort()}`, TEST_USER: freshUser() };
    expect(JSON.parse(await project.node([file], env))).toEqual({ onExpress: [201, 409] });
  });

  describe("in TypeScript", () => {
    beforeAll(() => copyFile(join(project.folder, "shop.mts"), join(project.folder, "shop.cts")));

    test.each(Object.keys(compilers))("compiles with %s as both kinds of module", async (name) => {
      const strict = ["--noEmit", "--strict", "--exactOptionalPropertyTypes", "--types", "node"];
      const loose = ["--esModuleInterop", "--skipLibCheck", "--target", "es2022"];
      const tsc = join("node_modules", name, "bin", "tsc");
      const modules = ["--module", "nodenext", "shop.mts", "shop.cts"];
      await project.node([tsc, ...strict, ...loose, ...modules]);
    });
  });
});

test("clients of real versions are taken from 6.2 on, and refused below", async () => {
  const versions = ["4.7.1", "5.12.1", "6.1.0", "6.2.0"];
  const clients = Object.fromEntries(
    versions.map((each) => [`redis-${each}`, `npm:redis@${each}`]),
  );
  const text = `import { RedisStore } from "submit-lock";
    const told = {};
    for (const version of ${JSON.stringify(versions)}) {
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
  const code = { file: "main.js", text };
  const several = await consumers.installInto("versions", code, {
    type: "module",
    packages: clients,
  });
  const refused = (what: string) => expect.stringMatching(`^SUBMIT_LOCK_INVALID_OPTION ${what}`);
  const others = (version: string) => ({
    [`${version} pool`]: refused("a pool of node-redis, "),
    [`${version} sentinel`]: refused("node-redis' Sentinel client, "),
  });
  expect(JSON.parse(await several.node(["main.js"]))).toEqual({
    "4.7.1 one": refused("node-redis 4 or older, "),
    "4.7.1 cluster": refused("node-redis 4 or older, "),
    "5.12.1 one": refused("node-redis 5, "),
    "5.12.1 cluster": refused("node-redis 5, "),
    ...others("5.12.1"),
    "6.1.0 one": refused("node-redis 5, 6.0 or 6.1"),
    "6.1.0 cluster": refused("node-redis 5, 6.0 or 6.1"),
    ...others("6.1.0"),
    "6.2.0 one": "taken",
    "6.2.0 cluster": "taken",
    ...others("6.2.0"),
  });
});

interface Place {
  readonly url: string;
  readonly more?: readonly string[];
  /** The address as the commands print it. */
  readonly named: string;
  /** Made on the same Redis. */
  readonly lock: SubmitLock;
}

function lockOn(port: number, options: SharedOptions = {}): SubmitLock {
  const store = new RedisStore(nodeRedis6.connect(port, options));
  return openLock({ store, ttlMs: 5_000, holder: "web-3:4711" });
}

async function server(...args: string[]): Promise<RedisServer> {
  const started = await startRedis({ args });
  stops.push(() => started.stop());
  return started;
}

/** The line of the page on permissions, with what node-redis and the commands need as well. */
const rights =
  "+eval +evalsha +get +set +pttl +pexpire +del +time +info +client|info +select +scan";

const places: readonly (readonly [name: string, open: () => Promise<Place>])[] = [
  [
    "a server with a password and another database",
    async () => {
      const { port } = await server();
      const login = ["reset", "on", ">p@ss", "~lock:submit:*"];
      await command(port, "acl", "setuser", "checkout", ...login, ...rights.split(" "));
      const url = `redis://checkout:p%40ss@127.0.0.1:${port}/5`;
      const lock = lockOn(port, { db: 5, username: "checkout", password: "p@ss" });
      return { url, named: `database 5 of 127.0.0.1:${port}`, lock };
    },
  ],
  [
    "a Cluster",
    async () => {
      const cluster = await startCluster();
      stops.push(() => cluster.stop());
      const port = cluster.ports[0] as number;
      const store = new RedisStore(nodeRedisCluster6.connect([port]));
      const lock = openLock({ store, ttlMs: 5_000, holder: "web-3:4711" });
      const named = `the Cluster at 127.0.0.1:${port}`;
      return { url: `redis://127.0.0.1:${port}`, more: ["--cluster"], named, lock };
    },
  ],
  [
    "a server that uses TLS",
    async () => {
      const { port } = await server();
      const tls = await startTls(port);
      stops.push(() => tls.stop());
      const authority = join(project.folder, "ca.pem");
      await writeFile(authority, certificate);
      const url = `rediss://127.0.0.1:${tls.port}`;
      const named = `database 0 of 127.0.0.1:${tls.port}`;
      return { url, more: ["--tls-ca", authority], named, lock: lockOn(port) };
    },
  ],
];

describe.each(places)("P10: the commands with node-redis on %s", (_name, open) => {
  test("show a lock, list it, free it and examine Redis", async () => {
    const { url, more = [], named, lock } = await open();
    const user = freshUser();
    await until(
      () =>
        lock.check().then(
          () => true,
          () => false,
        ),
      { what: "the lock" },
    );
    const lease = await leaseOf(lock, user);
    const id = lease.ownerId.slice(0, 8);

    const shown = await run(["show", user, ...more], url);
    expect(shown).toMatchObject({ code: 0, stderr: "" });
    expect(shown.stdout).toContain(`User ${user} is placing an order right now.`);
    expect(shown.stdout).toContain("web-3:4711");

    const listed = await run(["list", ...more], url);
    expect(listed).toMatchObject({ code: 0, stderr: "" });
    expect(listed.stdout).toContain(user);
    expect(listed.stdout).toContain(named);

    const watched = await run(["watch", user, "--for", "300ms", ...more], url);
    expect(watched).toMatchObject({ code: 0, stderr: "" });
    expect(watched.stdout).toContain(`taken    web-3:4711 ${id}`);

    const freed = await run(["free", user, "--id", id, "--reason", "4711", ...more], url);
    expect(freed.code).toBe(0);
    expect(JSON.parse(freed.stderr.trim())).toMatchObject({ outcome: "freed", state: "held" });
    await until(() => lease.signal.aborted, { what: "the holder to hear of it" });

    const examined = await run(["doctor", ...more], url);
    expect(examined.stderr).toBe("");
    expect(examined.stdout).toContain("acquire, extend and release of a lock work");
    expect(examined.stdout).not.toContain("FAIL");
  });
});

describe("P10: the commands with node-redis", () => {
  const runAll = (url: string, more: readonly string[] = []) =>
    Promise.all(
      everyCommand.map(async (args) => ({
        name: args[0],
        ...(await run([...args, ...more], url)),
      })),
    );

  test("end with 3 where no Redis is or none answers, also for a Cluster, and with 4 for a wrong password", async () => {
    const [silent, closed] = [await server(), await server("--requirepass", "secret")];
    silent.pause();
    const nobody = `redis://127.0.0.1:${await freePort()}`;
    const noAnswer =
      /no answer from .*127\.0\.0\.1:\d+\. Is the address right, |no answer from 127/;
    const rejected = /rejected the user name or password/;
    for (const [url, more, wanted, message] of [
      [nobody, [], 3, noAnswer],
      [nobody, ["--cluster"], 3, noAnswer],
      [silent.url, [], 3, noAnswer],
      [closed.url, [], 4, rejected],
      [closed.url.replace("://", "://:wrong-one@"), [], 4, rejected],
    ] as const) {
      for (const { name, code, stdout, stderr } of await runAll(url, more)) {
        expect({ url, name, code, stdout }).toEqual({ url, name, code: wanted, stdout: "" });
        expect(stderr).toMatch(message);
      }
    }
  });

  test("look at a Cluster that has lost a master, and say so", async () => {
    const cluster = await startCluster();
    stops.push(() => cluster.stop());
    const [first, second] = cluster.nodes as [RedisServer, RedisServer];
    await second.kill();
    const isDown = async () =>
      String(await command(first.port, "cluster", "info")).includes("cluster_state:fail");
    await until(isDown, { what: "the Cluster to be down" });
    const users = Array.from({ length: 12 }, freshUser);
    const ends = users.map((user) => run(["show", user, "--cluster"], first.url));
    for (const { code, stdout, stderr } of await Promise.all(ends)) {
      expect({ code, stdout, stderr }).toMatchObject({ code: 3, stdout: "" });
    }
    const { code, stdout } = await run(["doctor", "--cluster"], first.url);
    expect(code).toBe(1);
    expect(stdout).toMatch(
      /FAIL {2}cluster_state of this node is fail \(\d+ of 16384 slots are served\)/,
    );
    expect(stdout).toContain(`127.0.0.1:${second.port}`);
  });

  test("end with 2 where there is no such database", async () => {
    const { port, url } = await server();
    for (const { name, code, stdout, stderr } of await runAll(`${url}/99`)) {
      expect({ name, code, stdout }).toEqual({ name, code: 2, stdout: "" });
      expect(stderr).toContain(`database 99 of 127.0.0.1:${port} does not exist`);
    }
  });

  test("end with 3 for a server whose certificate is not trusted", async () => {
    const tls = await startTls(sharedRedisPort());
    stops.push(() => tls.stop());
    const { code, stdout, stderr } = await run(["show", "42"], `rediss://127.0.0.1:${tls.port}`);
    expect({ code, stdout }).toEqual({ code: 3, stdout: "" });
    expect(stderr).toContain("pass the server's authority with --tls-ca");
  });

  test("say that Sentinels need ioredis", async () => {
    const where = ["--sentinel", `127.0.0.1:${await freePort()}`, "--master", "shop"];
    for (const { name, code, stdout, stderr } of await runAll("", where)) {
      expect({ name, code, stdout }).toEqual({ name, code: 2, stdout: "" });
      expect(stderr).toContain("--sentinel needs ioredis. Install it with: npm install ioredis");
    }
  });
});

describe("P10: the client of --config, of node-redis", () => {
  const withConfig = (args: readonly string[], file: string, SHOP_REDIS: string) =>
    project.bin("submit-lock", [...args, "--config", file], { REDIS_URL: "", SHOP_REDIS });

  test("is used where the module has connected it", async () => {
    const { port, url } = await server();
    const user = freshUser();
    for (const args of [["show", user], ["list"], ["doctor"]]) {
      const { stdout, stderr } = await withConfig(args, "connected.mjs", `${url}/5`);
      expect({ args, stderr }).toEqual({ args, stderr: "" });
      expect(stdout).toContain(args[0] === "doctor" ? `127.0.0.1:${port}` : `database 5 of`);
    }
  });

  test("is refused where nothing has connected it, with the way out", async () => {
    const { port, url } = await server();
    for (const args of [["show", "42"], ["list"], ["doctor"]]) {
      const { code, stdout, stderr } = await withConfig(args, "unconnected.mjs", url);
      expect({ args, code, stdout }).toEqual({ args, code: 2, stdout: "" });
      expect(stderr).toContain(`127.0.0.1:${port}: call connect() on the node-redis client`);
    }
  });
});
