import { spawn, spawnSync } from "node:child_process";
import { randomUUID } from "node:crypto";
import { once } from "node:events";
import { mkdtempSync, readFileSync, rmSync, writeFileSync } from "node:fs";
import { type AddressInfo, createServer, type Socket } from "node:net";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { afterAll, describe, expect, onTestFinished, test } from "vitest";
import { slotOf } from "../../src/stores/redis/clients/slots.ts";
import {
  auditOf,
  bin,
  configModule,
  everyCommand,
  expectFailure,
  runEvery,
  runMain,
  runProgram,
} from "../support/cli.ts";
import { command } from "../support/command.ts";
import { freePort } from "../support/free-port.ts";
import { freshUser } from "../support/ids.ts";
import { startProxy } from "../support/proxy.ts";
import { startCluster } from "../support/redis-cluster.ts";
import { forTest, sharedRedisPort, startRedis } from "../support/redis-server.ts";
import { certificate, nameCertificate, startTls } from "../support/tls.ts";
import { until } from "../support/until.ts";

const redis = await startRedis();
afterAll(() => redis.stop());
const at = `127.0.0.1:${redis.port}`;
/** The line of the page on permissions, without `+select`. */
const rights = ["+eval", "+evalsha", "+get", "+set", "+pttl", "+pexpire", "+del", "+time", "+info"];
const rules = ["on", ">pw", "~lock:submit:*", ...rights, "+scan"];
await command(redis.port, "acl", "setuser", "checkout", ...rules);

test("the help of a command is asked for in either order", async () => {
  const { stdout } = await runMain(["free", "--help"]);
  expect(stdout).toContain("--stranded");
  expect(await runMain(["help", "free"])).toEqual({ code: 0, stderr: "", stdout });
  expectFailure(await runMain(["help", "nosuch"]), 2, '"nosuch"');
});

function authorityOf(pem: string): { readonly folder: string; readonly authority: string } {
  const folder = mkdtempSync(join(tmpdir(), "submit-lock-tls-"));
  onTestFinished(() => rmSync(folder, { recursive: true, force: true }));
  const authority = join(folder, "ca.pem");
  writeFileSync(authority, pem);
  return { folder, authority };
}

/** A user whose slot is one of these. */
function userBetween(from: number, to: number): string {
  for (;;) {
    const user = freshUser();
    const slot = slotOf(`lock:submit:${user}`);
    if (slot >= from && slot < to) return user;
  }
}

/** Runs every command, and looks that a lock in database 0 was left alone. */
async function refusals(...given: Parameters<typeof runEvery>) {
  const key = "lock:submit:42";
  await command(redis.port, "set", key, "1");
  const ends = await runEvery(...given);
  expect(await command(redis.port, "get", key)).toBe("1");
  return ends;
}

describe("P10: every command proves where it is before it looks", () => {
  test.each<[what: string, url: string, code: number, said: string]>([
    ["nobody listens", "redis://127.0.0.1:1", 3, "ECONNREFUSED"],
    ["no address is given", "", 2, "where is Redis?"],
    ["the password is wrong", `redis://checkout:wrong-one@${at}`, 4, "user name or password"],
    ["there is no such database", `redis://${at}/99`, 2, `database 99 of ${at}: no such database`],
    ["the user may not select", `redis://checkout:pw@${at}/5`, 4, "ACL SETUSER with +select"],
  ])("and ends with its code where %s", async (_what, url, code, said) => {
    for (const ended of await refusals(url)) {
      expectFailure(ended, code, said);
      expect(ended.stderr).not.toContain("wrong-one");
    }
  });

  test("and ends with 3 where Redis does not answer, and does not hang", async () => {
    const { url, pause } = await forTest(startRedis());
    pause();
    // A process that had something left to wait for would not end.
    const program = await runProgram(["doctor"], { REDIS_URL: url });
    for (const ended of [program, ...(await runEvery(url))]) {
      expectFailure(ended, 3, "no answer from 127.0.0.1:");
    }
  });

  test("and a user without +select may look into database 0", async () => {
    const env = { REDIS_URL: `redis://checkout:pw@${at}/0` };
    expect(await runMain(["show", "43"], env)).toMatchObject({ code: 0, stderr: "" });
  });

  test("and free names it in the audit line", async () => {
    const user = freshUser();
    const set = "redis.call('SELECT', 5) redis.call('SET', KEYS[1], 1)";
    await command(redis.port, "eval", set, 1, `lock:submit:${user}`);
    const args = ["free", user, "--id", "356a192b", "--reason", "x"];
    const { code, stderr } = await runMain(args, { REDIS_URL: `redis://${at}/5` });
    expect(code).toBe(0);
    expect(auditOf(stderr)).toMatchObject({ outcome: "freed", database: 5, redis: at });
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

describe("P10: the client of --config", () => {
  const config = (options: string, more = ""): string =>
    configModule(
      `export const redis = new Redis({ port: ${redis.port}, host: "127.0.0.1", ...${options} });
       ${more}
       export default new SubmitLock({ store: new RedisStore(redis) });`,
    );

  test.each([
    ["of no such database", "{ db: 99 }", "", 2, "database 99 of"],
    ["selected later", "{}", "redis.select(99).catch(() => {});", 2, "database 99 of"],
    ["not permitted", '{ db: 5, username: "checkout", password: "pw" }', "", 4, "+select"],
    ["not reachable", "{ db: 5, port: 1 }", "", 3, "ECONNREFUSED"],
  ])("is refused where its database is %s", async (_what, options, more, code, said) => {
    for (const ended of await refusals("", ["--config", config(options, more)])) {
      expectFailure(ended, code, said);
    }
  });

  test.each([
    ["lazily", "{ db: 5, lazyConnect: true }", ""],
    ["at run time", "{}", "void redis.select(5);"],
  ])("looks into the database that it chose %s, and says which", async (_how, options, more) => {
    const shown = await runMain(["show", "42", "--config", config(options, more)]);
    expect(shown).toMatchObject({ code: 0, stderr: "" });
    expect(shown.stdout).toContain(`in database 5 of ${at}`);
  });

  test("is that of the shop's own lock, with its prefix", async () => {
    const file = configModule(
      `export const redis = new Redis(process.env.REDIS_URL);
       export default new SubmitLock({ store: new RedisStore(redis), keyPrefix: "lock:config:" });`,
    );
    await command(redis.port, "set", "lock:config:47", "1");
    const shown = await runProgram(["show", "47", "--config", file], { REDIS_URL: redis.url });
    expect(shown).toMatchObject({ code: 0, stderr: "" });
    expect(shown.stdout).toContain("is not submit-lock");
  });

  test.each([
    [() => [configModule("export default 42;")], "to default-export a SubmitLock, got 42"],
    [() => ["./nowhere.mjs"], "cannot load ./nowhere.mjs"],
    [() => [configModule('throw "not today";')], "(not today)"],
    [() => [configModule("throw null;")], "(null)"],
    // Such as `await client.connect()` while Redis is away.
    [() => [configModule("await new Promise(() => {});")], "has not loaded within 10 s"],
    [() => ["./any.mjs", "--prefix", "a:"], "--config and --prefix exclude each other"],
  ])("is missed: %#", async (given, said) => {
    expectFailure(await runMain(["show", "42", "--config", ...given()]), 2, said);
  });
});

test("output that cannot be written is told, and no success", () => {
  const words = `"${process.execPath}" "${bin}" list --json --url "${redis.url}" > /dev/full`;
  const { status, stderr } = spawnSync("sh", ["-c", words], { encoding: "utf8" });
  expect(status).toBe(2);
  expect(stderr).toContain("submit-lock: cannot write the output (ENOSPC");
});

test("an audit line that cannot be written is told, and no success", async () => {
  const key = `lock:submit:${freshUser()}`;
  await command(redis.port, "set", key, `${randomUUID()}:10000:60000:h:s:f`, "px", 60_000);
  const { id } = JSON.parse(
    (await runMain(["show", key.slice(12), "--json", "--url", redis.url])).stdout,
  );
  const words = `"${process.execPath}" "${bin}" free ${key.slice(12)} --id ${id} --reason r --url "${redis.url}" 2> /dev/full`;
  const { status, stdout } = spawnSync("sh", ["-c", words], { encoding: "utf8" });
  expect(status).toBe(2);
  expect(stdout).toMatch(/^Freed by .*\nsubmit-lock: cannot write to stderr \(ENOSPC/);
});

test("a server that closes each connection is told of, and of what does so", async () => {
  const server = createServer((socket) => socket.resetAndDestroy()).listen(0, "127.0.0.1");
  onTestFinished(() => void server.close());
  await once(server, "listening");
  const { port } = server.address() as AddressInfo;
  const ended = await runMain(["show", "42", "--url", `redis://127.0.0.1:${port}`]);
  expectFailure(ended, 3, "no answer, and the connection was closed");
  expect(ended.stderr).toContain("rediss:// exactly where Redis uses TLS");
});

test("an address with TLS of a Redis without it is told of", async () => {
  const url = `rediss://127.0.0.1:${sharedRedisPort()}`;
  const ended = await runMain(["show", "42", "--url", url]);
  expectFailure(ended, 3, "rediss:// exactly where Redis uses TLS");
});

test("Ctrl-C at a question changes nothing, and says so", async ({ skip }) => {
  if (spawnSync("script", ["--version"]).status !== 0) return skip("there is no script here");
  const key = `lock:submit:${freshUser()}`;
  await command(redis.port, "set", key, `${randomUUID()}:x`, "px", 60_000);
  const words = `"${process.execPath}" "${bin}" free ${key.slice(12)} --url "${redis.url}"`;
  // It gives the program a terminal.
  const args = ["--quiet", "--return", "--command", words, "/dev/null"];
  const terminal = spawn("script", args, { stdio: "pipe" });
  onTestFinished(() => void terminal.kill());
  let shown = "";
  terminal.stdout.on("data", (chunk) => {
    shown += chunk;
  });
  const ended = once(terminal, "exit");
  await until(() => shown.includes("audit line"), { what: "the question", boundMs: 60_000 });
  terminal.stdin.write("\x03");
  expect(await ended).toEqual([2, null]);
  expect(shown).toContain("Nothing was changed");
  expect(await command(redis.port, "exists", key)).toBe(1);
});

describe("P10: an address", () => {
  const ends = ["?db=5", "/?db=5", "/0#5", "/0/1", "/5/", "//5", "/5000000000", "/one"];
  const passwords = [
    "/S3cret",
    "12/34/S3cret",
    "12?S3cret",
    "12#S3cret",
    "S3%cret",
    "S3cret\u001b/",
  ];

  test.each([
    "http://127.0.0.1",
    "127.0.0.1:6379",
    // The database is the path alone.
    ...ends.map((end) => `redis://127.0.0.1:6379${end}`),
    ...passwords.flatMap((password) => [
      `redis://shop:${password}@127.0.0.1:6379/0`,
      `redis://shop:${password}@127.0.0.1/5?a=b`,
    ]),
  ])("such as %j is refused, and no password is shown", async (address) => {
    const ended = await runMain(["show", "42"], { REDIS_URL: address });
    expectFailure(ended, 2, "expected an address such as redis://user:password@host:6379/0");
    expect(ended.stderr).not.toMatch(/S3|cret|34/);
  });

  test("of a Cluster has no database", async () => {
    const show = (url: string) => runMain(["show", "42", "--cluster"], { REDIS_URL: url });
    expectFailure(await show("redis://127.0.0.1:1/5"), 2, "--cluster looks at database 0");
    // Nothing answers here, and so the address was right.
    expectFailure(await show("redis://127.0.0.1:1/0"), 3);
  });
});

describe("a Cluster", () => {
  test("is asked as a whole, also when a part of it is down", async () => {
    const [first, second] = (await forTest(startCluster())).nodes;
    if (first === undefined || second === undefined) throw new Error("no nodes");
    const env = { REDIS_URL: first.url };
    // Users of the first and of the second third of the slots.
    const [mine, others] = [userBetween(0, 5_000), userBetween(6_000, 10_000)];
    await command(second.port, "set", `lock:submit:${others}`, "1", "PX", 600_000);

    const shown = await runMain(["show", others, "--cluster"], env);
    expect(shown.stdout).toContain("is not submit-lock");
    expect(shown.stdout).toMatch(new RegExp(`submit-lock free --id .* --cluster ${others}\\n`));
    expect((await runMain(["list", "--cluster"], env)).stdout).toContain(others);
    // A plain client would see the keys of this node alone, and "none" would be an answer.
    const stranded = ["free", "--stranded", "--value", "1", "--life", "20m", "--older", "1m"];
    for (const command of [["show", others], ["list"], ["answers", others], stranded]) {
      expectFailure(await runMain(command, env), 2, "Add --cluster");
    }
    const other = { REDIS_URL: `${first.url}/5` };
    expectFailure(await runMain(["show", others], other), 2, "leave the database out of the URL");

    const old = ["--value", "1", "--life", "20m", "--older", "1m"];
    const freed = await runMain(["free", "--stranded", ...old, "--cluster"], env);
    expect(freed.stdout).toContain("freed 1 lock older than 1 min");
    expect(await command(second.port, "exists", `lock:submit:${others}`)).toBe(0);

    await second.kill();
    const isDown = async () =>
      String(await command(first.port, "cluster", "info")).includes("cluster_state:fail");
    await until(isDown, { what: "the Cluster to notice", boundMs: 30_000 });
    for (const user of [mine, others]) {
      expectFailure(
        await runMain(["show", user, "--cluster"], env),
        3,
        "the Cluster at 127.0.0.1:",
      );
    }
    const examined = await runMain(["doctor", "--cluster"], env);
    expect(examined.code).toBe(1);
    expect(examined.stdout).toMatch(/FAIL {2}cluster_state of this node is fail/);
  });

  test("that is none is said to be none", async () => {
    const ended = await runMain(["show", "42", "--cluster"], { REDIS_URL: redis.url });
    expectFailure(ended, 2, "is not a Cluster. Leave --cluster out");
  });
});

test("a Unix socket is reached by its path, and its database by ?db", async () => {
  const folder = mkdtempSync(join(tmpdir(), "submit-lock-socket-"));
  onTestFinished(() => rmSync(folder, { recursive: true, force: true }));
  const path = join(folder, "redis.sock");
  const server = await forTest(startRedis({ args: ["--unixsocket", path] }));
  const set = "redis.call('SELECT', 5) redis.call('SET', KEYS[1], 1)";
  await command(server.port, "eval", set, 1, "lock:submit:51");
  const show = (end: string) => runMain(["show", "51"], { REDIS_URL: `${path}${end}` });
  expect((await show("?db=5")).stdout).toContain("is not submit-lock");
  expect((await show("")).stdout).toContain("is not locked");
  expectFailure(await show("?db=99"), 2, `database 99 of ${path}: no such database`);
  expectFailure(await show("?db=x"), 2, "--config");
  expectFailure(await runMain(["show", "51", "--cluster"], { REDIS_URL: path }), 2, "--cluster");
});

test("?family chooses the addresses of a name", async () => {
  const show = (end: string, ...args: string[]) =>
    runMain(["show", "42", ...args], { REDIS_URL: `redis://localhost:${redis.port}${end}` });
  // The server listens on 127.0.0.1 alone.
  for (const end of ["?family=4", "/0?family=0"]) {
    expect(await show(end)).toMatchObject({ code: 0, stderr: "" });
  }
  expectFailure(await show("?family=6"), 3, "localhost");
  expectFailure(await show("?family=5"), 2, "?family=0");
});

test("a TLS Cluster is reached whose certificate is for names", async () => {
  const [server] = (await forTest(startCluster(["--cluster-announce-hostname", "localhost"])))
    .nodes;
  if (server === undefined) throw new Error("no nodes");
  const tls = await forTest(startTls(server.port, { of: "name" }));
  await command(server.port, "config", "set", "cluster-preferred-endpoint-type", "hostname");
  await command(server.port, "config", "set", "cluster-announce-port", `${tls.port}`);
  const { authority } = authorityOf(nameCertificate);
  const user = userBetween(0, 5_000);
  const args = ["show", user, "--cluster", "--tls-ca", authority];
  const shown = await runMain(args, { REDIS_URL: `rediss://localhost:${tls.port}` });
  expect(shown).toMatchObject({ code: 0, stderr: "" });
  expect(shown.stdout).toContain("is not locked");
});

test("a server that wants a client certificate is for --config, and the message says so", async () => {
  const tls = await forTest(startTls(sharedRedisPort(), { asksClients: true }));
  const { authority } = authorityOf(certificate);
  const env = { REDIS_URL: `rediss://127.0.0.1:${tls.port}` };
  expectFailure(
    await runMain(["show", "42", "--tls-ca", authority], env),
    3,
    "certificate",
    "--config",
  );
});

test("Sentinels that do not answer are named", async () => {
  const sentinel = `127.0.0.1:${await freePort()}`;
  const args = ["show", "42", "--sentinel", sentinel, "--master", "mymaster"];
  const said = `the master "mymaster" of the Sentinels at ${sentinel}: no Sentinel answered`;
  expectFailure(await runMain(args), 3, said);
});

test.each([
  ["-NOAUTH Authentication required.", 4, "rejected the login"],
  [
    "-NOPERM User default has no permissions to run the 'sentinel' command",
    4,
    "does not permit SENTINEL",
  ],
  ["*-1", 3, "no Sentinel answered with that master"],
])("a Sentinel that answers %s is told of", async (reply, code, said) => {
  const server = createServer((socket) => {
    socket
      .on("error", () => {})
      .on("data", (chunk) => {
        // A reply for each of the commands.
        for (const _command of `${chunk}`.matchAll(/^\*/gm)) socket.write(`${reply}\r\n`);
      });
  }).listen(0, "127.0.0.1");
  onTestFinished(() => void server.close());
  await once(server, "listening");
  const sentinel = `127.0.0.1:${(server.address() as AddressInfo).port}`;
  const args = ["show", "42", "--sentinel", sentinel, "--master", "mymaster"];
  expectFailure(await runMain(args), code, said);
});

test("a Redis without EVAL is told of, which may be a Sentinel", async () => {
  const { port } = await forTest(startRedis({ args: ["--rename-command", "EVAL", ""] }));
  const words = ["show", "42", "--url", `redis://127.0.0.1:${port}`];
  expectFailure(await runMain(words), 4, "use --sentinel");
});

test("a Cluster of which no node answers is told of", async () => {
  const url = `redis://127.0.0.1:${await freePort()}`;
  const said = "no node answered. Is one up, and does the address say rediss://";
  expectFailure(await runMain(["show", "42", "--cluster", "--url", url]), 3, said);
});

test("with rediss:// the master that Sentinels name gets no password in clear text", async () => {
  let heard = Buffer.alloc(0);
  const listening = async (onData: (chunk: Buffer, socket: Socket) => void) => {
    const server = createServer((socket) => {
      socket.on("error", () => {}).on("data", (chunk) => onData(chunk, socket));
    }).listen(0, "127.0.0.1");
    onTestFinished(() => void server.close());
    await once(server, "listening");
    return (server.address() as AddressInfo).port;
  };
  const master = await listening((chunk, socket) => {
    heard = Buffer.concat([heard, chunk]);
    socket.destroy();
  });
  const named = `*2\r\n$9\r\n127.0.0.1\r\n$${`${master}`.length}\r\n${master}\r\n`;
  const sentinel = await listening((chunk, socket) => {
    for (const _ of chunk.toString().matchAll(/\*\d+\r\n/g)) {
      socket.write(chunk.includes("get-master-addr-by-name") ? named : "*0\r\n");
    }
  });
  const tls = await forTest(startTls(sentinel));
  const { authority } = authorityOf(certificate);
  const args = ["show", "42", "--sentinel", `127.0.0.1:${tls.port}`, "--master", "mymaster"];
  const env = { REDIS_URL: "rediss://checkout:S3cret@127.0.0.1" };
  expect((await runMain([...args, "--tls-ca", authority], env)).code).toBe(3);
  // The record of a TLS handshake.
  expect(heard[0]).toBe(0x16);
  expect(heard.toString("latin1")).not.toContain("S3cret");
});

test("TLS is spoken with rediss:// and the authority of --tls-ca, and nothing else", async () => {
  const tls = await forTest(startTls(sharedRedisPort()));
  const { authority, folder } = authorityOf(certificate);
  const show = async (database: string, ...args: string[]) =>
    await runMain(["show", "42", ...args], {
      REDIS_URL: `rediss://127.0.0.1:${tls.port}${database}`,
    });
  expect(await show("", "--tls-ca", authority)).toMatchObject({ code: 0, stderr: "" });
  expectFailure(await show("/99", "--tls-ca", authority), 2, "database 99 of 127.0.0.1:");
  expectFailure(await show(""), 3, "no secure connection", "with --tls-ca");
  const none = join(folder, "none.pem");
  expectFailure(await show("", "--tls-ca", none), 2, "--tls-ca: cannot read");
});

test.each(everyCommand)(
  "%s refuses an address at a wrong place, and does not show it",
  async (...args) => {
    const [name = ""] = args;
    const address = "redis://:pa55word@127.0.0.1:1";
    const { stdout } = await runMain([name, "--help"]);
    const options = [...stdout.matchAll(/^ {2}(--[\w-]+) </gm)].map(([, option = ""]) => option);
    expect(options).toContain("--sentinel");
    const others = options.filter((option) => option !== "--url");
    const wrong = others.map((option) => {
      const at = args.indexOf(option);
      return [...(at < 0 ? args : args.toSpliced(at, 2)), option, address];
    });
    if (args[1] === "42") wrong.push([name, address, ...args.slice(2)]);
    for (const given of wrong) {
      const ended = await runMain(given);
      expectFailure(ended, 2, "the address of Redis belongs in --url or REDIS_URL");
      expect(ended.stderr).not.toContain("pa55word");
    }
    const sentinels = ["--sentinel", ":pa55word@127.0.0.1:1", "--master", "m"];
    const ended = await runMain([...args, ...sentinels]);
    expectFailure(ended, 2, "--sentinel: expected host:port, got a URL");
  },
);

test.each(["--version", "-v", "-V", "version"])("%s prints the version alone", async (asked) => {
  const { version } = JSON.parse(readFileSync("package.json", "utf8"));
  const printed = await runProgram([asked]);
  expect(printed).toEqual({ code: 0, stdout: `${version}\n`, stderr: "" });
});
