import { afterEach, describe, expect, test } from "vitest";
import { auditOf, expectFailure, runAsPerson, runMain } from "../support/cli.ts";
import { command } from "../support/command.ts";
import { freshUser } from "../support/ids.ts";
import { leaseOf } from "../support/locks.ts";
import { sharedRedisPort } from "../support/redis-server.ts";
import { until } from "../support/until.ts";
import { closeFixtures, openDirect, openFixture } from "./fixture.ts";

afterEach(closeFixtures);

const port = sharedRedisPort();
const env = { REDIS_URL: `redis://127.0.0.1:${port}` };

const why = ["--reason", "ticket 4711", "--by", "anna@ops-1"];

/** A user whose lock is held. */
async function openHeld(options: Parameters<typeof openDirect>[0] = {}) {
  const lock = await openDirect(options);
  const user = freshUser();
  const lease = await leaseOf(lock, user);
  return { lock, user, lease, id: lease.ownerId.slice(0, 8) };
}

describe("free", () => {
  test("tells the holder before the next one may start, and writes an audit line", async () => {
    const { lock, user, lease, id } = await openHeld({ ttlMs: 3_000, holder: "web-3:4711" });
    const { code, stdout, stderr } = await runMain(["free", user, "--id", id, ...why], env);
    expect(code).toBe(0);
    expect(stdout).toMatch(
      /^Freed by anna@ops-1 \(ticket 4711\)\. User .* can order again in [0-3]\.\d s\.\n$/,
    );
    expect(auditOf(stderr)).toEqual({
      event: "submit-lock free",
      time: expect.stringMatching(/^\d{4}-\d\d-\d\dT.*Z$/),
      userId: user,
      id,
      reason: "ticket 4711",
      by: "anna@ops-1",
      now: false,
      state: "held",
      outcome: "freed",
      freeInMs: expect.any(Number),
      redis: `127.0.0.1:${port}`,
      database: 0,
      key: lock.keyFor(user),
    });
    const shown = await runMain(["show", user], env);
    expect(shown.stdout).toMatch(/was freed by anna@ops-1 \(ticket 4711\)|is not locked/);
    await until(() => lease.signal.aborted, { what: "the holder to be told" });
    expect(lease.signal.reason).toMatchObject({ reason: "freed" });
    await until(async () => (await runMain(["show", user], env)).stdout.includes("is not locked"), {
      what: "the user to be free",
    });
  });

  test("answers a second one of the same id as the first", async () => {
    const { user, id } = await openHeld({ ttlMs: 20_000, acquireTimeoutMs: 5_000 });
    const args = ["free", user, "--id", id, ...why, "--json"];
    for (const attempt of [1, 2]) {
      const { code, stdout, stderr } = await runMain(args, env);
      expect({ attempt, code }).toEqual({ attempt, code: 0 });
      expect(JSON.parse(stdout)).toEqual({
        userId: user,
        outcome: "freed",
        freeInMs: expect.any(Number),
      });
      // Only who did it has an audit line.
      if (attempt === 1) expect(auditOf(stderr)).toMatchObject({ by: "anna@ops-1" });
      else expect(stderr).toBe("");
    }
    const already =
      /^Already freed by anna@ops-1 \(ticket 4711\)\. User .* Nothing was changed\.\n$/;
    const asked = await runAsPerson(["free", user, "--by", "ben@ops-2"], env, []);
    expect(asked).toMatchObject({ code: 0, stderr: "", questions: [] });
    expect(asked.stdout).toMatch(already);
    // Another id is still refused.
    const other = await runMain(["free", user, "--id", "deadbeef", ...why], env);
    expect(other).toMatchObject({ code: 1, stdout: "" });
  });

  test("leaves the lock of another order alone: yesterday's id changes nothing", async () => {
    const { user, lease, id } = await openHeld();
    const yesterday = "deadbeef";
    const before = await command(port, "get", lease.key);
    const ended = await runMain(["free", user, "--id", yesterday, ...why], env);
    const said = `the id that was given is not that of the user's lock \\(${id}, working, for .* s\\)`;
    expectFailure(ended, 1, new RegExp(said), "It was mistyped, a newer order has begun");
    const asJson = await runMain(["free", user, "--id", yesterday, ...why, "--json"], env);
    expect(asJson).toEqual({
      code: 1,
      stdout: `{"userId":"${user}","outcome":"changed"}\n`,
      stderr: "",
    });
    expect(await command(port, "get", lease.key)).toBe(before);
    await lease.release();
  });

  test("has nothing to do for a user who is free", async () => {
    const user = freshUser();
    const { code, stdout, stderr } = await runMain(["free", user, "--id", "deadbeef", ...why], env);
    expect({ code, stderr }).toEqual({ code: 0, stderr: "" });
    expect(stdout).toBe(`User ${user} is free already. Nothing was changed.\n`);
  });

  test("asks nothing without a terminal, and names what it needs", async () => {
    const user = freshUser();
    for (const [given, named] of [
      [[], "--id and --reason"],
      [["--id", "deadbeef"], "free needs --reason"],
      [["--reason", "x"], "free needs --id"],
    ] as const) {
      expectFailure(await runMain(["free", user, ...given], env), 2, named);
    }
  });

  test("changes nothing in a dry run, and says how long the user waits at most", async () => {
    const { user, lease } = await openHeld({ ttlMs: 20_000, acquireTimeoutMs: 5_000 });
    const { code, stdout } = await runMain(["free", user, "--dry-run"], env);
    expect(code).toBe(0);
    expect(stdout).toContain(`Would free user ${user} (${lease.ownerId.slice(0, 8)}, working, `);
    expect(stdout).toContain(" let the next order start in 20.0 s at most. Nothing was changed.");
    const asJson = await runMain(["free", user, "--dry-run", "--json"], env);
    const would = { userId: user, outcome: "freed", freeInMs: 20_000, dryRun: true };
    expect(JSON.parse(asJson.stdout)).toEqual(would);
    const other = await runMain(["free", user, "--dry-run", "--id", "deadbeef", "--json"], env);
    expect(other.code).toBe(1);
    expect(JSON.parse(other.stdout)).toEqual({ userId: user, outcome: "changed", dryRun: true });
    expect(String(await command(port, "get", lease.key))).toContain(lease.ownerId);
    await lease.release();
  });

  /** Frees a key of another kind while the reply to that is lost, and perhaps all that follow. */
  async function freeUnheard(isDeaf: boolean) {
    const { proxy, redis } = await openFixture();
    const user = freshUser();
    await redis.send("SET", `lock:submit:${user}`, "1", "PX", 60_000);
    const shown = await runMain(["show", user, "--json"], env);
    const { id } = JSON.parse(shown.stdout);
    const lost = proxy.loseReplyOnce((argv) => argv[0] === "eval" && argv.includes(id));
    if (isDeaf) void lost.then(() => proxy.swallowReplies(true));
    const args = ["free", user, "--id", id, ...why];
    const ended = await runMain(args, { REDIS_URL: `redis://127.0.0.1:${proxy.port}` });
    return { user, redis, ended };
  }

  test("says that it does not know where its answer is lost", async () => {
    const { user, redis, ended } = await freeUnheard(true);
    const next = `Look again: npx --no-install submit-lock show ${user}`;
    expectFailure(ended, 3, `Whether the user was freed is not known. ${next}`);
    expect(ended.stderr).not.toContain('submit-lock free"');
    expect(await redis.exists(`lock:submit:${user}`)).toBe(false);
  });

  test("leaves an audit line also where only its second request was answered", async () => {
    const { user, ended } = await freeUnheard(false);
    expect(ended).toMatchObject({ code: 0, stdout: `User ${user} is free by now.\n` });
    expect(auditOf(ended.stderr)).toMatchObject({
      userId: user,
      outcome: "already-free",
      reason: "ticket 4711",
    });
  });

  test.each([
    ["another word", ["why", "yes"], "that is not the id"],
    ["no reason", [""], "nothing was typed"],
    ["the end of the input", ["why", undefined], "nothing was typed"],
  ])("changes nothing when a person types %s", async (_what, answers, message) => {
    const { user, lease } = await openHeld();
    const { code, stderr } = await runAsPerson(["free", user], env, answers);
    expect(code).toBe(2);
    expect(stderr).toContain(message);
    expect(stderr).toContain("Nothing was changed");
    expect(String(await command(port, "get", lease.key))).toContain(lease.ownerId);
    await lease.release();
  });

  test("--now asks for the id once more where there is somebody to ask", async () => {
    const { lock, user, lease, id } = await openHeld();
    const args = ["free", user, "--id", id, "--now", ...why];
    expect(await runAsPerson(args, env, ["no"])).toMatchObject({ code: 2 });
    expect(String(await command(port, "get", lease.key))).toContain(lease.ownerId);
    const { code, stdout, stderr } = await runAsPerson(args, env, [id]);
    expect(code).toBe(0);
    expect(stderr).toContain("two orders and two charges are possible");
    expect(stderr).toMatch(/Without --now the next order can start in \d+\.\d s at most\./);
    expect(stdout).toContain("can order again now");
    await (await leaseOf(lock, user)).release();
  });
});
