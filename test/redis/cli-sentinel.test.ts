import { expect, inject, test } from "vitest";
import type { Report } from "../../src/cli/doctor.ts";
import { startSentinels } from "../lab/topologies/sentinel.ts";
import { runMain } from "../support/cli.ts";
import { command } from "../support/command.ts";
import { freshUser } from "../support/ids.ts";

test("a master is found by its Sentinels, and doctor looks at those as well", async () => {
  const right = ["--appendonly", "yes", "--min-replicas-to-write", "1"];
  const topology = await startSentinels(inject("redisServerBinary"), right);
  try {
    const { target } = topology;
    if (target.kind !== "sentinel") throw new Error("no Sentinels");
    const addresses = target.ports.map((port) => `127.0.0.1:${port}`).join(",");
    const where = ["--sentinel", addresses, "--master", target.name];
    const env = { REDIS_URL: "" };
    const user = freshUser();
    const master = await topology.masterOf("");
    await command(master.port, "set", `lock:submit:${user}`, "1", "PX", 60_000);
    const shown = await runMain(["show", user, ...where], env);
    expect(shown.stdout).toContain("is not submit-lock");
    expect(shown.stdout).toContain(
      `submit-lock free --sentinel ${addresses} --master ${target.name} ${user}`,
    );
    await command(master.port, "del", `lock:submit:${user}`);
    const none = await runMain(["show", user, ...where], { REDIS_URL: "redis://unused/99" });
    expect(none).toMatchObject({ code: 2, stdout: "" });
    expect(none.stderr).toContain(`database 99 of the master "${target.name}"`);

    const examine = async () => {
      const { stdout, stderr } = await runMain(["doctor", "--json", ...where], env);
      expect(stderr).toBe("");
      const { servers, findings }: Report = JSON.parse(stdout);
      const all = [...servers.flatMap((server) => server.findings), ...findings];
      return all
        .filter(({ level }) => level !== "ok")
        .map(({ level, check }) => `${level} ${check}`);
    };
    expect(await examine()).toEqual([]);

    const [first = 0] = target.ports;
    await command(first, "SENTINEL", "SET", target.name, "down-after-milliseconds", 30_000);
    expect(await examine()).toEqual(["warn down-after"]);
    await command(first, "SENTINEL", "SET", target.name, "quorum", 4);
    expect(await examine()).toEqual(["fail quorum", "warn down-after"]);
  } finally {
    await topology.stop();
  }
});
