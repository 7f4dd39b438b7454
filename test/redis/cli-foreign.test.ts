import { afterEach, describe, expect, test } from "vitest";
import { runAsPerson, runMain } from "../support/cli.ts";
import { command } from "../support/command.ts";
import { freshUser } from "../support/ids.ts";
import { leaseOf } from "../support/locks.ts";
import { sharedRedisPort } from "../support/redis-server.ts";
import { closeFixtures, openDirect } from "./fixture.ts";

afterEach(closeFixtures);

const port = sharedRedisPort();
const env = { REDIS_URL: `redis://127.0.0.1:${port}` };

const why = ["--reason", "ticket 4711", "--by", "anna@ops-1"];

/** The audit line, after the warning. */
function audit(stderr: string): Record<string, unknown> {
  return JSON.parse(stderr.trim().split("\n").at(-1) ?? "");
}

describe("the incident's key, a SETNX of two hours", () => {
  test("is shown for what it is, and ended in one command", async () => {
    const lock = await openDirect({});
    const user = freshUser();
    const key = lock.keyFor(user);
    await command(port, "set", key, "1", "PX", 7_200_000, "NX");
    expect((await lock.acquire(user)).outcome).toBe("contended");

    const shown = await runMain(["show", user], env);
    expect(shown.code).toBe(0);
    expect(shown.stdout).toContain(
      `User ${user} is locked by something that is not submit-lock, for another`,
    );
    const [, id = ""] = /^ {2}id {7}(\w{8})$/m.exec(shown.stdout) ?? [];

    const freed = await runMain(["free", user, "--id", id, ...why], env);
    expect(freed.code).toBe(0);
    expect(freed.stdout).toBe(
      `Freed by anna@ops-1 (ticket 4711). User ${user} can order again now.\n`,
    );
    // Nobody was asked, but the warning is given.
    expect(freed.stderr).toContain("two orders and two charges are possible");
    expect(audit(freed.stderr)).toMatchObject({ state: "foreign", outcome: "freed" });
    expect(await command(port, "exists", key)).toBe(0);
    await (await leaseOf(lock, user)).release();
  });

  test("is ended by a person who types the id that is asked for", async () => {
    const user = freshUser();
    await command(port, "set", `lock:submit:${user}`, "1", "PX", 7_200_000);
    const answers = ["ticket 4711", "356a192b"];
    const { code, stdout, stderr, questions } = await runAsPerson(["free", user], env, answers);
    expect(questions.at(-1)).toBe(`Type the id (356a192b) to free user ${user}: `);
    expect(stderr).toContain(
      "Its holder may still be at work and is not notified: two orders and two charges are possible.",
    );
    expect(code).toBe(0);
    expect(stdout).toContain(`User ${user} can order again now.`);
    expect(await command(port, "exists", `lock:submit:${user}`)).toBe(0);
  });
});

describe("a UUID that another library wrote", () => {
  test("is not called an order that is under way, and ends at once with --now", async () => {
    const user = freshUser();
    const owner = "6fa459ea-0000-4000-8000-000000000000";
    await command(port, "set", `lock:submit:${user}`, owner, "PX", 6_720_000);
    const { stdout } = await runMain(["show", user], env);
    expect(stdout).toMatch(
      /is locked by submit-lock 0\.1 or another library, for another 1 h 5\d min;/,
    );
    expect(stdout).toContain(
      `its process is gone: npx --no-install submit-lock free --now ${user}\n`,
    );
    const { stdout: rows } = await runMain(["list", "--state", "unknown", "--limit", "10000"], env);
    expect(rows).toMatch(new RegExp(`^${user} +unknown +\\? +\\? +1 h 5\\d min `, "m"));
    const asked = await runAsPerson(["free", user], env, [undefined]);
    expect(asked.stderr).toContain(
      "free without --now leaves the user locked out for the time above.",
    );
    expect(asked.stderr).not.toMatch(/placing an order|asked to stop/);
    const now = ["free", user, "--now", "--id", "6fa459ea", "--reason", "x"];
    expect(await runMain(now, env)).toMatchObject({ code: 0 });
    expect(await command(port, "exists", `lock:submit:${user}`)).toBe(0);
  });
});
