import { spawnSync } from "node:child_process";
import { existsSync, mkdtempSync, readdirSync, renameSync, rmSync, writeFileSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { installOnDebian } from "../../support/server-binary.ts";
import { type RedisServer, startServer } from "../../support/server-process.ts";

/**
 * libfaketime, which gives a server a wall clock of its own; on Debian and Ubuntu as root it is
 * installed. `undefined` where there is none.
 */
export function faketimeLibrary(): string | undefined {
  return library() ?? (installOnDebian("libfaketime") ? library() : undefined);
}

function library(): string | undefined {
  // Debian has a folder for each architecture.
  const folders = ["/usr/lib", "/usr/local/lib"].filter((folder) => existsSync(folder));
  return folders
    .flatMap((folder) => [folder, ...readdirSync(folder).map((name) => join(folder, name))])
    .map((folder) => join(folder, "faketime", "libfaketimeMT.so.1"))
    .find((file) => existsSync(file));
}

/** Whether the server starts under it: an allocator that looks at the clock at once may hang. */
export function canBeStepped(binary: string, faketime: string): boolean {
  const env = { ...process.env, ...preloaded(faketime) };
  return spawnSync(binary, ["--version"], { env, stdio: "ignore", timeout: 10_000 }).status === 0;
}

/** The C library's own allocator in the place of jemalloc, which asks libfaketime before it is ready. */
function preloaded(faketime: string): NodeJS.ProcessEnv {
  return { LD_PRELOAD: `${faketime} libc.so.6` };
}

/** A server whose wall clock steps; its monotonic one goes on, as that of a real host. */
export interface SteppedServer extends RedisServer {
  /** By how many seconds its wall clock is wrong from now on. */
  step(seconds: number): void;
}

export async function startStepped(binary: string, faketime: string): Promise<SteppedServer> {
  const folder = mkdtempSync(join(tmpdir(), "submit-lock-clock-"));
  const file = join(folder, "offset");
  const step = (seconds: number) => {
    // It is read again at each look at the clock, so it must never be half written.
    writeFileSync(`${file}.next`, `${seconds < 0 ? "" : "+"}${seconds}s\n`);
    renameSync(`${file}.next`, file);
  };
  step(0);
  const env = {
    ...preloaded(faketime),
    FAKETIME_TIMESTAMP_FILE: file,
    FAKETIME_NO_CACHE: "1",
    FAKETIME_DONT_FAKE_MONOTONIC: "1",
    DONT_FAKE_MONOTONIC: "1",
  };
  const server = await startServer(binary, { env });
  return {
    ...server,
    pid: server.pid,
    step,
    async stop() {
      await server.stop();
      rmSync(folder, { recursive: true, force: true });
    },
  };
}
