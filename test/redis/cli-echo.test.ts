import { beforeAll, describe, expect, test } from "vitest";
import { submitKey } from "../../src/lock/submit-key.ts";
import { runMain } from "../support/cli.ts";
import { command } from "../support/command.ts";
import { freshUser } from "../support/ids.ts";
import { sharedRedisPort } from "../support/redis-server.ts";

const port = sharedRedisPort();
const env = { REDIS_URL: `redis://127.0.0.1:${port}` };

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
