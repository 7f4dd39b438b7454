import { spawn } from "node:child_process";
import { once } from "node:events";
import { describe, expect, test } from "vitest";
import { bin } from "../support/cli.ts";
import { command } from "../support/command.ts";
import { freshUser } from "../support/ids.ts";
import { sharedRedisPort } from "../support/redis-server.ts";
import { until } from "../support/until.ts";

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
    for (const [noColor, isColoured] of [
      ["", true],
      ["1", false],
    ] as const) {
      const seen = onTerminal(["show", user], { NO_COLOR: noColor });
      await seen.ended;
      expect(seen.printed).toContain(`User ${user} is not locked`);
      expect(seen.printed.includes("\u001b[1m")).toBe(isColoured);
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
