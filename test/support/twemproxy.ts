import { mkdtempSync, rmSync, writeFileSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { Program } from "./child.ts";
import { freePort } from "./free-port.ts";
import { hasProgram } from "./server-binary.ts";
import { answers } from "./server-process.ts";

/** Whether twemproxy is here, or could be installed now: Debian calls it `nutcracker`. */
export function hasTwemproxy(): boolean {
  return hasProgram("nutcracker");
}

/** A twemproxy in front of several servers, as a shop that has sharded its Redis by hand has it. */
export interface Twemproxy {
  readonly port: number;
  stop(): Promise<void>;
}

export async function startTwemproxy(ports: readonly number[]): Promise<Twemproxy> {
  const dir = mkdtempSync(join(tmpdir(), "submit-lock-twemproxy-"));
  const [port, statsPort] = [await freePort(), await freePort()];
  const config = join(dir, "proxy.yml");
  const servers = ports.map((each) => `   - 127.0.0.1:${each}:1`).join("\n");
  writeFileSync(
    config,
    `shop:\n  listen: 127.0.0.1:${port}\n  hash: fnv1a_64\n  distribution: modula\n  redis: true\n  servers:\n${servers}\n`,
  );
  const args = ["-c", config, "-a", "127.0.0.1", "-s", `${statsPort}`, "-p", join(dir, "pid")];
  const program = new Program("nutcracker", args);
  // It has no PING, no INFO and no HELLO.
  const one = "*4\r\n$4\r\neval\r\n$8\r\nreturn 1\r\n$1\r\n1\r\n$1\r\na\r\n";
  await program.until(() => answers(port, one, /^:1/), "to answer", 30_000);
  return {
    port,
    async stop() {
      program.kill("SIGTERM");
      await program.ended;
      rmSync(dir, { recursive: true, force: true });
    },
  };
}
