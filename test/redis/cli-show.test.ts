import { afterEach, describe, expect, test } from "vitest";
import { visible } from "../../src/cli/terminal.ts";
import { configModule, expectFailure, runMain, runProgram } from "../support/cli.ts";
import { ioredis6 } from "../support/clients.ts";
import { command } from "../support/command.ts";
import { freshUser } from "../support/ids.ts";
import { leaseOf } from "../support/locks.ts";
import { sharedRedisPort } from "../support/redis-server.ts";
import { closeFixtures, openDirect } from "./fixture.ts";

afterEach(closeFixtures);

const port = sharedRedisPort();
const env = { REDIS_URL: `redis://127.0.0.1:${port}` };

describe("show", () => {
  test("tells who holds a lock, since when, and that its process is alive", async () => {
    const lock = await openDirect({ holder: "web-3:4711" });
    const user = freshUser();
    const lease = await leaseOf(lock, user);
    const { code, stdout, stderr } = await runMain(["show", user], env);
    expect({ code, stderr }).toEqual({ code: 0, stderr: "" });
    const [first, ...lines] = stdout.split("\n");
    expect(first).toBe(`User ${user} is placing an order right now.`);
    expect(lines).toContain("  where    web-3:4711");
    expect(lines).toContain(`  id       ${lease.ownerId.slice(0, 8)}`);
    expect(stdout).toContain("(every 3.3 s): its process is alive");
    expect(stdout).toContain(`To stop this order: npx --no-install submit-lock free ${user}\n`);
    expect(stdout).not.toContain(lease.ownerId);
    await lease.release();
    expect((await runMain(["show", user], env)).stdout).toContain(`User ${user} is not locked`);
  });

  test("prints what inspect gives, and the user, as one JSON object", async () => {
    const lock = await openDirect({ holder: "web-3:4711" });
    const user = freshUser();
    const lease = await leaseOf(lock, user);
    const { code, stdout, stderr } = await runMain(["show", user, "--json"], env);
    expect({ code, stderr }).toEqual({ code: 0, stderr: "" });
    expect(JSON.parse(stdout)).toEqual({
      userId: user,
      state: "held",
      id: lease.ownerId.slice(0, 8),
      holder: "web-3:4711",
      heldMs: expect.any(Number),
      renewedMs: expect.any(Number),
      expiresInMs: expect.any(Number),
      endsInMs: expect.any(Number),
    });
    await lease.release();
    const free = await runMain(["show", user, "--json"], env);
    expect(free.stdout).toBe(`${JSON.stringify({ userId: user, state: "free" })}\n`);
  });

  test("finds the user of any id, as keyFor encodes it", async () => {
    const lock = await openDirect({});
    const user = `anna/ü {b}:${freshUser()}`;
    const lease = await leaseOf(lock, user);
    const { stdout } = await runMain(["show", user], env);
    expect(stdout).toContain(`User ${user} is placing an order right now.`);
    expect(stdout).toContain(`npx --no-install submit-lock free '${user}'`);
    await lease.release();
  });

  test("quotes a user id with blanks at its ends, and warns of them", async () => {
    for (const user of [` ${freshUser()}`, `${freshUser()}\t`, "\u00a042"]) {
      const { code, stdout, stderr } = await runMain(["show", user], env);
      expect(code).toBe(0);
      expect(stdout).toContain(`User "${visible(user)}" is not locked`);
      expect(stderr).toBe(
        `The user id "${visible(user)}" has blanks at its ends. Were they pasted?\n`,
      );
    }
  });

  test("never shows a terminal what it would act upon", async () => {
    const lock = await openDirect({ holder: "web-3" });
    const user = `\u001b[2Janna\u202e${freshUser()}`;
    const lease = await leaseOf(lock, user);
    const value = String(await command(port, "get", lease.key)).replace("web-3", "%1B]0;x%07");
    await command(port, "set", lease.key, value, "PX", 60_000);
    for (const args of [
      ["show", user],
      ["list", "--limit", "10000"],
      ["watch", user, "--for", "1ms"],
    ]) {
      const { stdout, stderr } = await runMain(args, env);
      expect(stderr).toBe("");
      expect(stdout).toContain("\\u{1B}]0;x\\u{7}");
      for (const raw of ["\u001b", "\u0007", "\u202e"]) expect(stdout).not.toContain(raw);
    }
    await command(port, "del", lease.key);
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
    const suggested = `npx --no-install submit-lock free --ioredis-prefix shop: --prefix lock:refund: ${user}`;
    expect(stdout).toContain(suggested);
    expect((await runMain(["show", user], env)).stdout).toContain(`User ${user} is not locked`);
    await lease.release();
  });

  test("says so where Redis' clock was set back, and so does doctor", async () => {
    const lock = await openDirect({ ttlMs: 60_000, maxHoldMs: 60_000 });
    const user = freshUser();
    const { key } = await leaseOf(lock, user);
    await command(port, "pexpire", key, 3_600_000);
    const { stdout } = await runMain(["show", user], env);
    expect(stdout).toMatch(/for another (59 min|1 h).*because Redis' clock was set back;/);
    const { stdout: found } = await runMain(["doctor", "--budget", "60s"], env);
    expect(found).toMatch(/warn {2}Redis' clock was set back: \d+ keys? under lock:submit:/);
    const freed = await runMain(
      ["free", user, "--id", /id {7}(\w+)/.exec(stdout)?.[1] ?? "", "--reason", "x"],
      env,
    );
    expect(freed.stdout).toContain("can order again in 1 min");
    await command(port, "del", key);
  });
});

describe("--config", () => {
  test("uses the shop's own lock, with its prefix, its client and its times", async () => {
    const file = configModule(
      `export const redis = new Redis(process.env.REDIS_URL);
       export default new SubmitLock({ store: new RedisStore(redis), keyPrefix: "lock:config:" });`,
    );
    const lock = await openDirect({ keyPrefix: "lock:config:" });
    const user = freshUser();
    const lease = await leaseOf(lock, user);
    const shown = await runProgram(["show", user, "--config", file], env);
    expect(shown.stderr).toBe("");
    expect(shown.stdout).toContain("is placing an order right now");
    const listed = await runProgram(["list", "--config", file], env);
    expect(listed.stdout).toContain(user);
    await lease.release();
  });

  test("says what is missing", async () => {
    const file = configModule("export default 42;");
    for (const [given, said] of [
      [[file], "to default-export a SubmitLock"],
      [["./nowhere.mjs"], "cannot load ./nowhere.mjs"],
      [[file, "--prefix", "a:"], "--config and --prefix exclude each other"],
    ] as const) {
      expectFailure(await runMain(["show", "42", "--config", ...given], env), 2, said);
    }
  });
});
