import { mkdtempSync, rmSync, writeFileSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { describe, expect, onTestFinished, test } from "vitest";
import { slotOf } from "../../src/stores/redis/clients/slots.ts";
import { expectFailure, runEvery, runMain, runProgram } from "../support/cli.ts";
import { command } from "../support/command.ts";
import { freePort } from "../support/free-port.ts";
import { freshUser } from "../support/ids.ts";
import { startProxy } from "../support/proxy.ts";
import { startCluster } from "../support/redis-cluster.ts";
import { forTest, sharedRedisPort, startRedis } from "../support/redis-server.ts";
import { certificate, startTls } from "../support/tls.ts";
import { until } from "../support/until.ts";

const server = (...args: string[]) => forTest(startRedis({ args }));

describe("every command", () => {
  test("ends with 3 where no Redis is", async () => {
    const url = `redis://127.0.0.1:${await freePort()}`;
    const said =
      /^submit-lock: no answer from 127\.0\.0\.1:\d+\. Is the address right, .*ECONNREFUSED/;
    for (const ended of await runEvery(url)) expectFailure(ended, 3, said);
  });

  test("ends with 3 where Redis does not answer, and does not hang", async () => {
    const { url, pause } = await server();
    pause();
    // A process that had something left to wait for would not end.
    const program = await runProgram(["doctor"], { REDIS_URL: url });
    for (const ended of [program, ...(await runEvery(url))]) {
      expectFailure(ended, 3, "no answer from 127.0.0.1:");
    }
  });

  test.each(["", ":wrong-one@"])("ends with 4 after a wrong password: %j", async (auth) => {
    const { port } = await server("--requirepass", "secret");
    for (const ended of await runEvery(`redis://${auth}127.0.0.1:${port}`)) {
      expectFailure(ended, 4, "rejected the user name or password");
      expect(ended.stderr).not.toContain("wrong-one");
    }
  });

  test("asks where Redis is instead of guessing", async () => {
    for (const ended of await runEvery("")) {
      expectFailure(ended, 2, "where is Redis? Set REDIS_URL");
    }
  });
});

test.each([
  ["list", "scan"],
  ["doctor", "info"],
])("%s ends with 3 where Redis falls silent at %s", async (name, lost) => {
  const proxy = await forTest(startProxy(sharedRedisPort()));
  void proxy.loseReplyOnce(([command]) => command === lost, { deaf: true });
  const env = { REDIS_URL: `redis://127.0.0.1:${proxy.port}` };
  expectFailure(await runMain([name], env), 3, "within 2 s");
});

test("a user id that is none is refused before Redis is asked", async () => {
  const env = { REDIS_URL: `redis://127.0.0.1:${await freePort()}` };
  for (const user of ["", "x".repeat(201)]) {
    const said = "userId: expected a string of 1 to 200 characters";
    expectFailure(await runMain(["show", user], env), 2, said);
  }
});

test("a command without permission ends with 4", async () => {
  const { port } = await server();
  await command(port, "acl", "setuser", "reader", "on", ">pass", "~lock:submit:*", "+get");
  const env = { REDIS_URL: `redis://reader:pass@127.0.0.1:${port}` };
  for (const args of [
    ["show", "42"],
    ["free", "42", "--id", "deadbeef", "--reason", "x"],
  ]) {
    const said = 'has the line for ACL SETUSER, under "Permissions"';
    expectFailure(await runMain(args, env), 4, said);
  }
});

test("free on a replica says that it is one", async () => {
  const master = await server("--repl-diskless-sync-delay", "0");
  const replica = await server("--replicaof", "127.0.0.1", `${master.port}`);
  const user = freshUser();
  await command(master.port, "set", `lock:submit:${user}`, "1", "PX", 60_000);
  const hasKey = async () => (await command(replica.port, "exists", `lock:submit:${user}`)) === 1;
  await until(hasKey, { what: "the replica to have the key" });
  const args = ["free", user, "--id", "356a192b", "--reason", "x"];
  const ended = await runMain(args, { REDIS_URL: replica.url });
  expectFailure(ended, 3, "is a replica, and nothing can be changed there");
});

describe("a Cluster", () => {
  test("is asked as a whole, also when a part of it is down", async () => {
    const [first, second] = (await forTest(startCluster())).nodes;
    if (first === undefined || second === undefined) throw new Error("no nodes");
    const env = { REDIS_URL: first.url };
    // Users of the first and of the second third of the slots.
    const userBetween = (from: number, to: number) => {
      for (;;) {
        const user = freshUser();
        const slot = slotOf(`lock:submit:${user}`);
        if (slot >= from && slot < to) return user;
      }
    };
    const [mine, others] = [userBetween(0, 5_000), userBetween(6_000, 10_000)];
    await command(second.port, "set", `lock:submit:${others}`, "1", "PX", 600_000);

    const shown = await runMain(["show", others, "--cluster"], env);
    expect(shown.stdout).toContain("is not submit-lock");
    expect(shown.stdout).toContain(`submit-lock free --cluster ${others}`);
    const listed = await runMain(["list", "--cluster"], env);
    expect(listed.stdout).toContain(others);

    const alone = await runMain(["show", others], env);
    expectFailure(alone, 2, "is a node of a Cluster. Add --cluster");
    const other = await runMain(["show", others], { REDIS_URL: `${first.url}/5` });
    expectFailure(other, 2, "leave the database out of the URL");

    await second.kill();
    const isDown = async () =>
      String(await command(first.port, "cluster", "info")).includes("cluster_state:fail");
    await until(isDown, { what: "the Cluster to notice", boundMs: 30_000 });
    for (const user of [mine, others]) {
      const ended = await runMain(["show", user, "--cluster"], env);
      expectFailure(ended, 3, "the Cluster at 127.0.0.1:");
    }
    const { code, stdout } = await runMain(["doctor", "--cluster"], env);
    expect(code).toBe(1);
    expect(stdout).toMatch(
      /FAIL {2}cluster_state of this node is fail \(\d+ of 16384 slots are served\): it refuses every lock/,
    );
  });

  test("that is none is said to be none", async () => {
    const { url } = await server();
    const ended = await runMain(["show", "42", "--cluster"], { REDIS_URL: url });
    expectFailure(ended, 2, "is not a Cluster. Leave --cluster out");
  });
});

test("Sentinels that do not answer are named", async () => {
  const sentinel = `127.0.0.1:${await freePort()}`;
  const args = ["show", "42", "--sentinel", sentinel, "--master", "mymaster"];
  const said = `the master "mymaster" of the Sentinels at ${sentinel}: no Sentinel answered`;
  expectFailure(await runMain(args, { REDIS_URL: "" }), 3, said);
});

describe("TLS", () => {
  test("is spoken with rediss:// and the authority of --tls-ca, and nothing else", async () => {
    const tls = await forTest(startTls(sharedRedisPort()));
    const folder = mkdtempSync(join(tmpdir(), "submit-lock-tls-"));
    onTestFinished(() => rmSync(folder, { recursive: true, force: true }));
    const authority = join(folder, "ca.pem");
    writeFileSync(authority, certificate);
    const user = freshUser();
    const url = `rediss://127.0.0.1:${tls.port}`;
    const shown = await runMain(["show", user, "--tls-ca", authority], { REDIS_URL: url });
    expect(shown).toMatchObject({ code: 0, stderr: "" });
    expect(shown.stdout).toContain(`User ${user} is not locked`);
    const none = { REDIS_URL: `${url}/99` };
    const otherDatabase = await runMain(["show", user, "--tls-ca", authority], none);
    expectFailure(otherDatabase, 2, `database 99 of 127.0.0.1:${tls.port} does not exist`);

    const untrusted = await runMain(["show", user], { REDIS_URL: url });
    const advice = "pass the server's authority with --tls-ca";
    expectFailure(untrusted, 3, "no secure connection", advice);

    const unread = await runMain(["show", user, "--tls-ca", join(folder, "none.pem")], {
      REDIS_URL: url,
    });
    expectFailure(unread, 2, "--tls-ca: cannot read");
  });
});
