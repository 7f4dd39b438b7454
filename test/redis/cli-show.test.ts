import { mkdtempSync, rmSync, writeFileSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { afterEach, describe, expect, test } from "vitest";
import { runBin } from "../support/cli.ts";
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
    const { code, stdout, stderr } = await runBin(["show", user], env);
    expect({ code, stderr }).toEqual({ code: 0, stderr: "" });
    const [first, ...lines] = stdout.split("\n");
    expect(first).toBe(`User ${user} is placing an order right now.`);
    expect(lines).toContain("  where    web-3:4711");
    expect(lines).toContain(`  id       ${lease.ownerId.slice(0, 8)}`);
    expect(stdout).toContain("(every 3.3 s): its process is alive");
    expect(stdout).toContain(`To stop this order: submit-lock free ${user}\n`);
    expect(stdout).not.toContain(lease.ownerId);
    await lease.release();
    expect((await runBin(["show", user], env)).stdout).toContain(`User ${user} is not locked`);
  });

  test("prints what inspect gives, and the user, as one JSON object", async () => {
    const lock = await openDirect({ holder: "web-3:4711" });
    const user = freshUser();
    const lease = await leaseOf(lock, user);
    const { code, stdout, stderr } = await runBin(["show", user, "--json"], env);
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
    const free = await runBin(["show", user, "--json"], env);
    expect(free.stdout).toBe(`${JSON.stringify({ userId: user, state: "free" })}\n`);
  });

  test("tells a holder that has missed its renewals from one that is alive", async () => {
    const user = freshUser();
    const owner = "9c41be07-0000-4000-8000-000000000000";
    const takenUs = (Date.now() - 50_000) * 1_000;
    const value = `${owner}:${takenUs}:40000:120000:web-3%3A4711:${"-".repeat(22)}:${"-".repeat(22)}`;
    await command(port, "set", `lock:submit:${user}`, value, "PX", 6_000);
    const { stdout } = await runBin(["show", user], env);
    expect(stdout).toContain(
      "its process has missed 2 renewals: it died, or it cannot reach Redis",
    );
    expect(stdout).toContain("on web-3:4711, id 9c41be07");
    expect(stdout).toMatch(/The lock frees itself in [0-6]\.\d s\./);
  });

  test("finds the user of any id, as keyFor encodes it", async () => {
    const lock = await openDirect({});
    const user = `anna/ü {b}:${freshUser()}`;
    const lease = await leaseOf(lock, user);
    const { stdout } = await runBin(["show", user], env);
    expect(stdout).toContain(`User ${user} is placing an order right now.`);
    expect(stdout).toContain(`submit-lock free '${user}'`);
    await lease.release();
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
      const { stdout, stderr } = await runBin(args, env);
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
    const { stdout } = await runBin(["show", user, ...where], env);
    expect(stdout).toContain("is placing an order right now");
    // What is suggested looks at the same lock.
    const suggested = `submit-lock free --ioredis-prefix shop: --prefix lock:refund: ${user}`;
    expect(stdout).toContain(suggested);
    expect((await runBin(["show", user], env)).stdout).toContain(`User ${user} is not locked`);
    await lease.release();
  });

  test("says so where the key is no lock", async () => {
    const user = freshUser();
    await command(port, "rpush", `lock:submit:${user}`, "a");
    const { stdout } = await runBin(["show", user], env);
    expect(stdout).toContain(
      "is locked by a key that holds no text and so cannot be a lock, and it has no expiry",
    );
    const other = await runBin(["free", user, "--id", "00000000", "--reason", "x"], env);
    expect(other.code).toBe(1);
    expect(await command(port, "type", `lock:submit:${user}`)).toBe("list");
    const [, id = ""] = /^ {2}id {7}(\w{8})$/m.exec(stdout) ?? [];
    const freed = await runBin(["free", user, "--id", id, "--reason", "x"], env);
    expect(freed.code).toBe(0);
    expect(freed.stderr).toContain("It is deleted at once, with everything in it.");
    expect(await command(port, "exists", `lock:submit:${user}`)).toBe(0);
  });

  test("says so where Redis' clock was set back, and so does doctor", async () => {
    const lock = await openDirect({ ttlMs: 60_000, maxHoldMs: 60_000 });
    const user = freshUser();
    const { key } = await leaseOf(lock, user);
    await command(port, "pexpire", key, 3_600_000);
    const { stdout } = await runBin(["show", user], env);
    expect(stdout).toMatch(/for another (59 min|1 h).*because Redis' clock was set back;/);
    const { stdout: found } = await runBin(["doctor", "--budget", "60s"], env);
    expect(found).toMatch(/warn {2}Redis' clock was set back: \d+ keys? under lock:submit:/);
    const freed = await runBin(
      ["free", user, "--id", /id {7}(\w+)/.exec(stdout)?.[1] ?? "", "--reason", "x"],
      env,
    );
    expect(freed.stdout).toContain("can order again in 1 min");
    await command(port, "del", key);
  });
});

describe("--config", () => {
  let folder: string;
  afterEach(() => rmSync(folder, { recursive: true, force: true }));

  /** A module of a shop, which finds its packages from where the test lies. */
  function config(code: string): string {
    folder = mkdtempSync(join(tmpdir(), "submit-lock-config-"));
    const file = join(folder, "lock.mjs");
    const own = (name: string) => JSON.stringify(import.meta.resolve(name));
    const dist = JSON.stringify(new URL("../../dist/esm/index.js", import.meta.url).href);
    const head = `import { Redis } from ${own("ioredis")};\nimport { RedisStore, SubmitLock } from ${dist};\n`;
    writeFileSync(file, head + code);
    return file;
  }

  test("uses the shop's own lock, with its prefix, its client and its times", async () => {
    const file = config(
      `export const redis = new Redis(process.env.REDIS_URL);
       export default new SubmitLock({ store: new RedisStore(redis), keyPrefix: "lock:config:" });`,
    );
    const lock = await openDirect({ keyPrefix: "lock:config:" });
    const user = freshUser();
    const lease = await leaseOf(lock, user);
    const shown = await runBin(["show", user, "--config", file], env);
    expect(shown.stderr).toBe("");
    expect(shown.stdout).toContain("is placing an order right now");
    const listed = await runBin(["list", "--config", file], env);
    expect(listed.stdout).toContain(user);
    await lease.release();
  });

  test("says what is missing", async () => {
    const file = config("export default 42;");
    const wrong = await runBin(["show", "42", "--config", file], env);
    expect(wrong).toMatchObject({ code: 2, stdout: "" });
    expect(wrong.stderr).toContain("to default-export a SubmitLock");
    const none = await runBin(["show", "42", "--config", "./nowhere.mjs"], env);
    expect(none).toMatchObject({ code: 2, stdout: "" });
    expect(none.stderr).toContain("cannot load ./nowhere.mjs");
    const both = await runBin(["show", "42", "--config", file, "--prefix", "a:"], env);
    expect(both.stderr).toContain("--config and --prefix exclude each other");
  });
});
