import { execFile, spawn } from "node:child_process";
import { createHash, randomUUID } from "node:crypto";
import { once } from "node:events";
import { promisify } from "node:util";
import { afterEach, beforeAll, describe, expect, test } from "vitest";
import { submitKey } from "../../src/lock/submit-key.ts";
import { Program } from "../support/child.ts";
import { auditOf, bin, expectFailure, runMain } from "../support/cli.ts";
import { ioredis6 } from "../support/clients.ts";
import { command } from "../support/command.ts";
import { freshUser } from "../support/ids.ts";
import { leaseOf } from "../support/locks.ts";
import { forTest, sharedRedisPort, startRedis } from "../support/redis-server.ts";
import { until } from "../support/until.ts";
import { closeFixtures, openDirect } from "./fixture.ts";

afterEach(closeFixtures);

const port = sharedRedisPort();
const env = { REDIS_URL: `redis://127.0.0.1:${port}` };

describe("show", () => {
  test("tells who holds a lock, since when, and that its process is alive", async () => {
    const lock = await openDirect({ holder: "web-3:4711" });
    const user = `anna/ü {b}:${freshUser()}`;
    const lease = await leaseOf(lock, user);
    const id = lease.ownerId.slice(0, 8);
    const { stdout, ...ended } = await runMain(["show", user], env);
    expect(ended).toEqual({ code: 0, stderr: "" });
    const said = [
      `User ${user} is placing an order right now.`,
      "  where    web-3:4711",
      `  id       ${id}`,
      "(every 3.3 s): its process is alive",
      `Only if the handler looks at its signal: npx --no-install submit-lock free --id ${id} --reason 'an order that hangs' '${user}'\n`,
      "Safe with any handler: wait, or end process 4711 on web-3, with all other orders in it.",
    ];
    for (const each of said) expect(stdout).toContain(each);
    expect(stdout).not.toContain(lease.ownerId);
    const asJson = await runMain(["show", user, "--json"], env);
    expect(JSON.parse(asJson.stdout)).toEqual({
      userId: user,
      state: "held",
      id,
      holder: "web-3:4711",
      heldMs: expect.any(Number),
      renewedMs: expect.any(Number),
      expiresInMs: expect.any(Number),
      endsInMs: expect.any(Number),
    });
    await lease.release();
    expect((await runMain(["show", user], env)).stdout).toContain(`User ${user} is not locked`);
    const free = await runMain(["show", user, "--json"], env);
    expect(JSON.parse(free.stdout)).toEqual({ userId: user, state: "free" });
  });

  test("refuses what is no user id, and warns of blanks at its ends", async () => {
    // Redis is not asked: nobody listens there.
    const nowhere = { REDIS_URL: "redis://127.0.0.1:1" };
    for (const user of ["", "x".repeat(201)]) {
      expectFailure(await runMain(["show", user], nowhere), 2, "userId: expected a string");
    }
    const { code, stdout, stderr } = await runMain(["show", "42\t"], env);
    expect(code).toBe(0);
    expect(stdout).toContain('User "42\\u{9}" is not locked');
    expect(stderr).toBe('The user id "42\\u{9}" has blanks at its ends. Were they pasted?\n');
  });

  test("looks under the prefix of the lock, and behind that of the client", async () => {
    const connect = (at: number) => ioredis6.connect(at, { keyPrefix: "shop:" });
    const lock = await openDirect({ keyPrefix: "lock:refund:" }, connect);
    const user = freshUser();
    const lease = await leaseOf(lock, user);
    const where = ["--prefix", "lock:refund:", "--ioredis-prefix", "shop:"];
    const { stdout } = await runMain(["show", user, ...where], env);
    expect(stdout).toContain("is placing an order right now");
    // What is suggested looks at the same lock.
    const suggested = `npx --no-install submit-lock free --id ${lease.ownerId.slice(0, 8)} --reason 'an order that hangs' --prefix lock:refund: --ioredis-prefix shop: ${user}`;
    expect(stdout).toContain(suggested);
    expect((await runMain(["show", user], env)).stdout).toContain(`User ${user} is not locked`);
    await lease.release();
  });

  test("says so where Redis' clock was set back, and so does doctor", async () => {
    const lock = await openDirect({ ttlMs: 60_000, maxHoldMs: 60_000 });
    const user = freshUser();
    const { key, ownerId } = await leaseOf(lock, user);
    await command(port, "pexpire", key, 3_600_000);
    const { stdout } = await runMain(["show", user], env);
    expect(stdout).toMatch(/for another (59 min|1 h).*because Redis' clock was set back;/);
    const { stdout: found } = await runMain(["doctor", "--budget", "60s"], env);
    expect(found).toMatch(/warn {2}Redis' clock was set back: \d+ keys? under lock:submit:/);
    const freed = await runMain(["free", user, "--id", ownerId, "--reason", "x"], env);
    expect(freed.stdout).toContain("can order again in 1 min");
    await command(port, "del", key);
  });
});

describe("a suggested command", () => {
  /** Runs what a person copies from the output, in a shell without a terminal. */
  const runs = (stdout: string) => {
    const [, words = ""] = /: npx --no-install submit-lock (.*)$/m.exec(stdout) ?? [];
    const line = `'${process.execPath}' '${bin}' ${words}`;
    return promisify(execFile)("bash", ["-c", line], { env: { PATH: process.env["PATH"] } });
  };

  test.each<[string, string, number]>([
    ["a lock of another program", "1", 60_000],
    ["a bare UUID", randomUUID(), 60_000],
  ])("frees %s as it stands", async (_what, value, lifeMs) => {
    const user = `it's\t${freshUser()}`;
    const prefix = `it's:${freshUser()}:`;
    const key = prefix + submitKey("", user);
    await command(port, "set", key, value, "PX", lifeMs);
    const where = ["--prefix", prefix, "--url", env.REDIS_URL];
    const { stdout } = await runMain(["show", user, ...where]);
    expect((await runs(stdout)).stdout).toMatch(/^Freed by .* can order again now\.\n$/);
    expect(await command(port, "exists", key)).toBe(0);
  });

  test("frees an order that hangs, and list suggests the show that prints it", async () => {
    const prefix = `hang:${freshUser()}:`;
    const lock = await openDirect({ keyPrefix: prefix, ttlMs: 3_000 });
    const user = freshUser();
    const lease = await leaseOf(lock, user);
    const { stdout } = await runMain(["show", user, "--prefix", prefix, "--url", env.REDIS_URL]);
    expect((await runs(stdout)).stdout).toMatch(/^Freed by .* \(an order that hangs\)\./);
    await until(() => lease.signal.aborted, { what: "the holder to be told" });
    expect(lease.signal.reason).toMatchObject({ reason: "freed" });
    await command(port, "set", `${prefix}77`, "1", "PX", 60_000);
    const listed = await runMain(["list", "--prefix", prefix, "--url", env.REDIS_URL]);
    expect((await runs(listed.stdout)).stdout).toContain("User 77 is locked by something");
    await command(port, "del", `${prefix}77`);
  });
});

describe("watch", () => {
  const watching = (user: string, url: string) =>
    new Program(process.execPath, [bin, "watch", user], {
      env: { ...process.env, REDIS_URL: url },
    });

  test("prints what happens to a lock, until it is interrupted", async () => {
    const lock = await openDirect({ ttlMs: 3_000, holder: "web-3:4711" });
    const user = freshUser();
    const watch = watching(user, env.REDIS_URL);
    await watch.prints(/free/);
    const lease = await leaseOf(lock, user);
    const id = lease.ownerId.slice(0, 8);
    await watch.prints(new RegExp(`taken    web-3:4711 ${id}`));
    await watch.prints(/renewed/);
    const asJson = await runMain(["watch", user, "--json", "--for", "300ms"], env);
    const time = expect.stringMatching(/^\d{4}-/);
    const line = { time, userId: user, change: "taken", state: "held", id };
    expect(JSON.parse(asJson.stdout.split("\n")[0] ?? "")).toMatchObject(line);
    await lease.release();
    await watch.prints(/free {5}after about /);
    const lines = watch.output().trim().split("\n");
    for (const each of lines) expect(each).toMatch(/^\d\d:\d\d:\d\d\.\d{3} (free|taken|renewed)/);
    watch.kill("SIGINT");
    expect(await watch.ended).toBe("SIGINT");
  });

  test("ends with 3 when Redis falls silent", async () => {
    const redis = await forTest(startRedis());
    const watch = watching(freshUser(), redis.url);
    await watch.prints(/free/);
    redis.pause();
    expect(await watch.ended).toBe(3);
    expect(watch.output()).toContain("submit-lock: no answer from 127.0.0.1:");
  });
});

// Of util-linux: macOS has another one.
describe.skipIf(process.platform !== "linux")("on a real terminal", () => {
  function onTerminal(args: string[], more: Record<string, string> = {}, redirection = "") {
    const words = [process.execPath, bin, ...args].map((word) => `'${word}'`);
    const line = `${words.join(" ")} ${redirection}`;
    const terminal = { ...process.env, ...env, TERM: "xterm", NO_COLOR: "", ...more };
    const child = spawn("script", ["-qec", line, "/dev/null"], { env: terminal });
    const seen = { child, printed: "", ended: once(child, "close") };
    child.stdout.on("data", (chunk) => {
      seen.printed += chunk;
    });
    return seen;
  }

  test("free asks for the reason and the id, unless its input is no terminal", async () => {
    const user = freshUser();
    await command(port, "set", `lock:submit:${user}`, "1", "PX", 7_200_000);
    const unasked = onTerminal(["free", user], {}, "< /dev/null");
    expect(await unasked.ended).toEqual([2, null]);
    expect(unasked.printed).toContain("without a terminal, free needs --id and --reason");
    const seen = onTerminal(["free", user]);
    const asks = (what: string) => until(() => seen.printed.includes(what), { what });
    await asks("Why, for the audit line");
    seen.child.stdin.write("ticket 4711\n");
    const expiresAt = await command(port, "pexpiretime", `lock:submit:${user}`);
    const id = createHash("sha1").update(`1:${expiresAt}`).digest("hex").slice(0, 8);
    await asks(`Type the lock's id (${id})`);
    seen.child.stdin.write(`${id}\n`);
    expect(await seen.ended).toEqual([0, null]);
    expect(seen.printed).toContain(`User ${user} can order again now.`);
  });

  test("list shows its progress, leaves nothing of it, and is coloured unless NO_COLOR is set", async () => {
    const seen = [onTerminal(["list"]), onTerminal(["list"], { NO_COLOR: "1" })] as const;
    for (const { ended } of seen) expect(await ended).toEqual([0, null]);
    const [coloured, plain] = seen.map(({ printed }) => printed.replaceAll("\u001b", "ESC"));
    expect(coloured).toMatch(/\rESC\[Klooked at [\d ]+ keys\r/);
    expect(coloured).toMatch(/\rESC\[KESC\[1mlock:submit: on /);
    expect(plain).toMatch(/\rESC\[Klock:submit: on /);
  });
});

/** Sets the title of a terminal, begins an escape sequence, turns the text round, and hides in a tag. */
const acting = "\u001b]0;x\u0007\u009b2J\u202e\u{e0041}";
// biome-ignore lint/suspicious/noControlCharactersInRegex: they are what is looked for.
const raw = /[\u0000-\u0009\u000b-\u001f\u007f-\u009f\u202e\u{e0041}]/u;

const foreign = freshUser();
beforeAll(() => command(port, "set", `lock:submit:${foreign}`, "1", "PX", 600_000));

describe("what is echoed is never acted upon by a terminal", () => {
  test.each<[string, string[]]>([
    ["an unknown command", [acting]],
    ["an unknown option", ["show", "42", `--${acting}`]],
    ["a state", ["list", "--state", acting]],
    ["a module", ["show", "42", "--config", `./${acting}.mjs`]],
    ["a Sentinel", ["show", "42", "--sentinel", `${acting}:1`, "--master", acting]],
    ["a prefix of list", ["list", "--prefix", acting]],
    ["a prefix of show", ["show", "42", "--prefix", acting, "--ioredis-prefix", acting]],
    ["an id", ["free", foreign, "--id", acting, "--reason", "x"]],
  ])("of %s", async (_what, args) => {
    const { code, stdout, stderr } = await runMain(args, env);
    expect({ stdout, stderr }).not.toMatchObject({ stdout: "", stderr: "" });
    expect([code, raw.exec(stdout), raw.exec(stderr)]).toEqual([code, null, null]);
  });

  test("of a key, its holder and its user, in texts and in JSON, which still says the same", async () => {
    const user = freshUser() + acting;
    const prefix = `echo:${freshUser()}:`;
    const where = ["--prefix", prefix];
    const key = prefix + submitKey("", user);
    const lock = await openDirect({ keyPrefix: prefix, holder: "web-3" });
    const lease = await leaseOf(lock, user);
    const value = String(await command(port, "get", key)).replace("web-3", "%1B]0;x%07");
    await command(port, "set", key, value, "PX", 60_000);
    const id = lease.ownerId.slice(0, 8);
    const freeing = ["free", user, "--id", id, "--reason", "x\u202e", "--by", "y\u202e"];
    for (const args of [
      ["show", user],
      ["show", user, "--json"],
      ["list"],
      ["list", "--json"],
      ["watch", user, "--for", "1ms"],
      ["watch", user, "--json", "--for", "1ms"],
      ["doctor", "--json"],
      ["doctor"],
      ["free", user, "--id", id, "--reason", acting],
      freeing,
    ]) {
      const { stdout, stderr } = await runMain([...args, ...where], env);
      expect(`${args[0]} ${raw.exec(stdout)} ${raw.exec(stderr)}`).toBe(`${args[0]} null null`);
      if (args[1] === user && args[2] !== "--id") expect(stdout).toMatch(/x\\u(\{7\}|0007)/);
      if (args[0] === "show" && args[2]) expect(JSON.parse(stdout)).toMatchObject({ userId: user });
      if (args === freeing) expect(auditOf(stderr)).toMatchObject({ userId: user, key });
    }
    await command(port, "del", key);
  });
});
