import { spawn } from "node:child_process";
import { once } from "node:events";
import { afterEach, beforeAll, describe, expect, test } from "vitest";
import { submitKey } from "../../src/lock/submit-key.ts";
import { Program } from "../support/child.ts";
import { bin, runMain } from "../support/cli.ts";
import { command } from "../support/command.ts";
import { freshUser } from "../support/ids.ts";
import { leaseOf } from "../support/locks.ts";
import { forTest, sharedRedisPort, startRedis } from "../support/redis-server.ts";
import { until } from "../support/until.ts";
import { closeFixtures, openDirect } from "./fixture.ts";

afterEach(closeFixtures);

const port = sharedRedisPort();
const env = { REDIS_URL: `redis://127.0.0.1:${port}` };

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

  test("free asks nothing where its input is no terminal", async () => {
    const seen = onTerminal(["free", freshUser()], {}, "< /dev/null");
    expect(await seen.ended).toEqual([2, null]);
    expect(seen.printed).toContain("without a terminal, free needs --id and --reason");
  });

  test("show is coloured unless NO_COLOR is set", async () => {
    const user = freshUser();
    const seen = [onTerminal(["show", user]), onTerminal(["show", user], { NO_COLOR: "1" })];
    for (const [i, { ended }] of seen.entries()) {
      await ended;
      expect(seen[i]?.printed).toContain(`User ${user} is not locked`);
      expect(seen[i]?.printed.includes("\u001b[1m")).toBe(i === 0);
    }
  });

  test("free asks for the reason and the id", async () => {
    const user = freshUser();
    await command(port, "set", `lock:submit:${user}`, "1", "PX", 7_200_000);
    const seen = onTerminal(["free", user]);
    const asks = (what: string) => until(() => seen.printed.includes(what), { what });
    await asks("Why, for the audit line");
    seen.child.stdin.write("ticket 4711\n");
    await asks("Type the id (356a192b)");
    seen.child.stdin.write("356a192b\n");
    expect(await seen.ended).toEqual([0, null]);
    expect(seen.printed).toContain(`User ${user} can order again now.`);
  });

  test("list shows its progress, and leaves nothing of it", async () => {
    const seen = onTerminal(["list"]);
    expect(await seen.ended).toEqual([0, null]);
    const printed = seen.printed.replaceAll("\u001b", "ESC");
    expect(printed).toMatch(/\rESC\[Klooked at [\d ]+ keys\r/);
    expect(printed).toMatch(/\rESC\[K(ESC\[1m)?lock:submit: on /);
  });
});

test("watch prints what happens to a lock, until it is interrupted", async () => {
  const lock = await openDirect({ ttlMs: 3_000, holder: "web-3:4711" });
  const user = freshUser();
  const options = { env: { ...process.env, ...env } };
  const watch = new Program(process.execPath, [bin, "watch", user], options);
  await watch.prints(/free/);
  const lease = await leaseOf(lock, user);
  const id = lease.ownerId.slice(0, 8);
  await watch.prints(new RegExp(`taken    web-3:4711 ${id}`));
  await watch.prints(/renewed/);
  await lease.release();
  await watch.prints(/free {5}after about /);
  const lines = watch.output().trim().split("\n");
  for (const line of lines) expect(line).toMatch(/^\d\d:\d\d:\d\d\.\d{3} (free|taken|renewed)/);
  watch.kill("SIGINT");
  expect(await watch.ended).toBe("SIGINT");
});

test("watch --json prints one object a line", async () => {
  const lock = await openDirect({});
  const user = freshUser();
  const lease = await leaseOf(lock, user);
  const { code, stdout, stderr } = await runMain(["watch", user, "--json", "--for", "300ms"], env);
  expect({ code, stderr }).toEqual({ code: 0, stderr: "" });
  const [first] = stdout.trim().split("\n");
  expect(JSON.parse(first ?? "")).toMatchObject({
    time: expect.stringMatching(/^\d{4}-/),
    userId: user,
    change: "taken",
    state: "held",
    id: lease.ownerId.slice(0, 8),
  });
  await lease.release();
});

test("watch ends with 3 when Redis falls silent", async () => {
  const redis = await forTest(startRedis());
  const options = { env: { ...process.env, REDIS_URL: redis.url } };
  const watch = new Program(process.execPath, [bin, "watch", freshUser()], options);
  await watch.prints(/free/);
  redis.pause();
  expect(await watch.ended).toBe(3);
  expect(watch.output()).toContain("submit-lock: no answer from 127.0.0.1:");
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
    ["a second user", ["show", "42", acting]],
    ["an unknown option", ["show", "42", `--${acting}`]],
    ["a switch with a value", ["show", "42", `--json=${acting}`]],
    ["a limit", ["list", "--limit", acting]],
    ["an age", ["list", "--older", acting]],
    ["a state", ["list", "--state", acting]],
    ["a module", ["show", "42", "--config", `./${acting}.mjs`]],
    ["an authority", ["show", "42", "--tls-ca", acting]],
    ["a Sentinel", ["show", "42", "--sentinel", `${acting}:1`, "--master", acting]],
    ["a prefix of list", ["list", "--prefix", acting]],
    ["a prefix of show", ["show", "42", "--prefix", acting, "--ioredis-prefix", acting]],
    ["an id", ["free", foreign, "--id", acting, "--reason", "x"]],
  ])("of %s", async (_what, args) => {
    const { code, stdout, stderr } = await runMain(args, env);
    expect({ stdout, stderr }).not.toMatchObject({ stdout: "", stderr: "" });
    expect([code, raw.exec(stdout), raw.exec(stderr)]).toEqual([code, null, null]);
  });

  test("of JSON, which still says the same", async () => {
    const user = freshUser() + acting;
    const prefix = `echo:${freshUser()}:`;
    const where = ["--prefix", prefix];
    const key = prefix + submitKey("", user);
    await command(port, "set", key, "1", "PX", 600_000);
    let freed: unknown;
    for (const args of [
      ["show", user, "--json", ...where],
      ["list", "--json", ...where],
      ["watch", user, "--json", "--for", "1ms", ...where],
      ["doctor", "--json", ...where],
      ["doctor", ...where],
      ["free", user, "--id", "356a192b", "--reason", acting, ...where],
      ["free", user, "--id", "356a192b", "--reason", "x\u202e", "--by", "y\u202e", ...where],
    ]) {
      const { stdout, stderr } = await runMain(args, env);
      expect(`${args[0]} ${raw.exec(stdout)} ${raw.exec(stderr)}`).toBe(`${args[0]} null null`);
      if (args[0] === "show") expect(JSON.parse(stdout)).toMatchObject({ userId: user });
      if (stdout.startsWith("Freed by")) {
        freed = JSON.parse(stderr.trim().split("\n").at(-1) ?? "");
      }
    }
    expect(freed).toMatchObject({ userId: user, key });
  });
});
