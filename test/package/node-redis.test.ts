import { writeFile } from "node:fs/promises";
import { join } from "node:path";
import { afterAll, afterEach, beforeAll, describe, expect, test } from "vitest";
import { RedisStore, type SubmitLock } from "../../src/index.ts";
import {
  closeClients,
  nodeRedis6,
  nodeRedisCluster6,
  type SharedOptions,
  untilReady,
} from "../support/clients.ts";
import { command } from "../support/command.ts";
import { freePort } from "../support/free-port.ts";
import { freshUser } from "../support/ids.ts";
import { closeLocks, leaseOf, openLock } from "../support/locks.ts";
import { startCluster } from "../support/redis-cluster.ts";
import { forTest, type RedisServer, sharedRedisPort, startRedis } from "../support/redis-server.ts";
import { certificate, startTls } from "../support/tls.ts";
import { until } from "../support/until.ts";
import { Consumers, type Project } from "./consumer-project.ts";

let consumers: Consumers;
/** It has node-redis, and no ioredis. */
let project: Project;
beforeAll(async () => {
  consumers = await Consumers.pack();
  const packages = { express: "express", redis: "redis" };
  project = await consumers.link("node-redis", "module", packages);
});
afterAll(() => consumers?.remove());

afterEach(async () => {
  await closeLocks();
  closeClients();
});

const run = (args: readonly string[], url = "", more: Record<string, string> = {}) =>
  project.submitLock(args, { REDIS_URL: url, ...more });
const answered = (args: readonly string[], url: string) =>
  project.answered(args, { REDIS_URL: url });
const server = (...args: string[]): Promise<RedisServer> => forTest(startRedis({ args }));

test.each(["main.mjs", "main.cjs"])("Express is protected in %s", async (file) => {
  const env = { REDIS_URL: `redis://127.0.0.1:${sharedRedisPort()}`, TEST_USER: freshUser() };
  expect(JSON.parse(await project.node([file], env))).toEqual({ onExpress: [201, 409] });
});

interface Place {
  readonly url: string;
  readonly more?: readonly string[];
  /** The address as the commands print it. */
  readonly named: string;
  /** Made on the same Redis. */
  readonly lock: SubmitLock;
}

const lockWith = (client: ConstructorParameters<typeof RedisStore>[0]): SubmitLock =>
  openLock({
    store: new RedisStore(client),
    ttlMs: 15_000,
    maxHoldMs: 300_000,
    holder: "web-3:4711",
  });

async function lockOn(port: number, options: SharedOptions = {}): Promise<SubmitLock> {
  return lockWith(await untilReady(nodeRedis6.connect(port, options)));
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
      const lock = await lockOn(port, { db: 5, username: "checkout", password: "p@ss" });
      return { url, named: `database 5 of 127.0.0.1:${port}`, lock };
    },
  ],
  [
    "a Cluster",
    async () => {
      const { ports } = await forTest(startCluster());
      const lock = lockWith(await untilReady(nodeRedisCluster6.connect(ports.slice(0, 1))));
      const named = `the Cluster at 127.0.0.1:${ports[0]}`;
      return { url: `redis://127.0.0.1:${ports[0]}`, more: ["--cluster"], named, lock };
    },
  ],
  [
    "a server that uses TLS",
    async () => {
      const { port } = await server();
      const tls = await forTest(startTls(port));
      const authority = join(project.folder, "ca.pem");
      await writeFile(authority, certificate);
      const url = `rediss://127.0.0.1:${tls.port}`;
      const named = `database 0 of 127.0.0.1:${tls.port}`;
      return { url, more: ["--tls-ca", authority], named, lock: await lockOn(port) };
    },
  ],
];

describe.each(places)("P10: the commands with node-redis on %s", (_name, open) => {
  test("show a lock, list it, free it and examine Redis", async () => {
    const { url, more = [], named, lock } = await open();
    const user = freshUser();
    const lease = await leaseOf(lock, user);
    const id = lease.ownerId.slice(0, 8);

    const shown = await answered(["show", user, ...more], url);
    expect(shown).toMatchObject({ code: 0, stderr: "" });
    expect(shown.stdout).toContain(`User ${user} is placing an order right now.`);
    expect(shown.stdout).toContain("web-3:4711");

    const listed = await answered(["list", ...more], url);
    expect(listed).toMatchObject({ code: 0, stderr: "" });
    expect(listed.stdout).toContain(user);
    expect(listed.stdout).toContain(named);

    const watched = await answered(["watch", user, "--for", "300ms", ...more], url);
    expect(watched).toMatchObject({ code: 0, stderr: "" });
    expect(watched.stdout).toContain(`taken    web-3:4711 ${id}`);

    const freed = await answered(["free", user, "--id", id, "--reason", "4711", ...more], url);
    expect(freed.code).toBe(0);
    expect(JSON.parse(freed.stderr.trim())).toMatchObject({ outcome: "freed", state: "held" });
    await until(() => lease.signal.aborted, { what: "the holder to hear of it" });

    const examined = await answered(["doctor", ...more], url);
    expect(examined.stderr).toBe("");
    expect(examined.stdout).toContain("acquire, extend and release of a lock work");
    expect(examined.stdout).not.toContain("FAIL");
  });
});

describe("P10: the commands with node-redis", () => {
  const paused = async () => {
    const silent = await server();
    silent.pause();
    return silent.url;
  };
  const locked = async (auth: string) =>
    (await server("--requirepass", "secret")).url.replace("://", `://${auth}`);
  const nobody = async () => `redis://127.0.0.1:${await freePort()}`;
  const [noAnswer, rejected] = ["no answer from ", "rejected the user name or password"];

  test.each<[what: string, url: () => Promise<string>, more: string[], code: number, said: string]>(
    [
      ["no Redis is", nobody, [], 3, noAnswer],
      ["no Cluster is", nobody, ["--cluster"], 3, noAnswer],
      ["Redis is silent", paused, [], 3, noAnswer],
      ["a password is missing", () => locked(""), [], 4, rejected],
      ["a password is wrong", () => locked(":wrong-one@"), [], 4, rejected],
      ["no such database is", async () => `${(await server()).url}/99`, [], 2, "no such database"],
      [
        "a certificate is not trusted",
        async () => `rediss://127.0.0.1:${(await forTest(startTls(sharedRedisPort()))).port}`,
        [],
        3,
        "pass the server's authority with --tls-ca",
      ],
      [
        "Sentinels are asked for",
        async () => "",
        ["--sentinel", "127.0.0.1:1", "--master", "shop"],
        2,
        "--sentinel needs ioredis. Install it with: npm install ioredis",
      ],
    ],
  )("say so and what to do where %s", async (_what, url, more, wanted, said) => {
    const { code, stdout, stderr } = await run(["show", "42", ...more], await url());
    expect({ code, stdout, stderr }).toMatchObject({ code: wanted, stdout: "" });
    expect(stderr).toContain(said);
  });

  test("look at a Cluster that has lost a master, and say so", async () => {
    const { nodes } = await forTest(startCluster());
    const [first, second] = nodes as [RedisServer, RedisServer];
    await second.kill();
    const isDown = async () =>
      String(await command(first.port, "cluster", "info")).includes("cluster_state:fail");
    await until(isDown, { what: "the Cluster to be down", boundMs: 60_000 });
    const shown = await run(["show", freshUser(), "--cluster"], first.url);
    expect(shown).toMatchObject({ code: 3, stdout: "" });
    const { code, stdout } = await run(["doctor", "--cluster"], first.url);
    expect(code).toBe(1);
    expect(stdout).toMatch(
      /FAIL {2}cluster_state of this node is fail \(\d+ of 16384 slots are served\)/,
    );
    expect(stdout).toContain(`127.0.0.1:${second.port}`);
  });

  test("use the client of --config where its module has connected it", async () => {
    const { port, url } = await server();
    for (const [args, said] of [
      [["show", freshUser()], "is not locked"],
      [["list"], "database 5 of"],
      [["doctor"], `127.0.0.1:${port}`],
    ] as const) {
      const config = ["--config", "connected.mjs"];
      const { stdout, stderr } = await run([...args, ...config], "", { SHOP_REDIS: `${url}/5` });
      expect({ args, stderr }).toEqual({ args, stderr: "" });
      expect(stdout).toContain(said);
    }
    const config = ["--config", "unconnected.mjs"];
    const refused = await run(["show", "42", ...config], "", { SHOP_REDIS: url });
    expect(refused).toMatchObject({ code: 2, stdout: "" });
    expect(refused.stderr).toContain(`127.0.0.1:${port}: call connect() on the node-redis client`);
  });
});
