import { type ChildProcess, spawn } from "node:child_process";
import { once } from "node:events";
import { mkdtempSync, rmSync } from "node:fs";
import { createConnection } from "node:net";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { atExit } from "./at-exit.ts";
import { freePort } from "./free-port.ts";
import { until } from "./until.ts";

export interface ServerOptions {
  /** More arguments, such as `["--maxmemory", "10mb"]`. */
  args?: readonly string[];
  /** More environment variables, such as the libraries that are loaded before it. */
  env?: NodeJS.ProcessEnv;
  /** A certain port instead of a free one. */
  port?: number;
  /** Start as a cluster node, with a free port for the cluster bus too. */
  cluster?: boolean;
}

/** A Redis server of our own, without persistence, on 127.0.0.1. */
export interface RedisServer {
  readonly port: number;
  readonly url: string;
  readonly pid: number;
  /** Cluster nodes talk to each other here. */
  readonly busPort: number | undefined;
  /** Ends it in an orderly way and removes its folder. */
  stop(): Promise<void>;
  /** SIGKILL: connections break, nothing is answered any more. */
  kill(): Promise<void>;
  /** SIGSTOP: connections stay open, TCP still accepts, nothing is answered. */
  pause(): void;
  /** SIGCONT: whatever came meanwhile is worked through. */
  resume(): void;
  /** A new, empty server on the same port. */
  restart(): Promise<void>;
}

const running = new Set<ChildProcess>();
const folders = new Set<string>();
atExit(() => {
  for (const child of running) child.kill("SIGKILL");
  for (const folder of folders) remove(folder);
});

function remove(folder: string): void {
  folders.delete(folder);
  rmSync(folder, { recursive: true, force: true });
}

/** Starts `binary` and resolves when it answers. */
export async function startServer(
  binary: string,
  options: ServerOptions = {},
): Promise<RedisServer> {
  const dir = mkdtempSync(join(tmpdir(), "submit-lock-redis-"));
  folders.add(dir);
  let { child, port, busPort } = await bindSomewhere(binary, dir, options).catch((error) => {
    remove(dir);
    throw error;
  });

  async function end(signal: "SIGTERM" | "SIGKILL"): Promise<void> {
    if (hasEnded(child)) return;
    const exited = once(child, "exit");
    child.kill(signal);
    // A paused process only hears SIGTERM once it goes on.
    child.kill("SIGCONT");
    const late = setTimeout(() => child.kill("SIGKILL"), 5_000);
    await exited;
    clearTimeout(late);
  }

  return {
    port,
    busPort,
    url: `redis://127.0.0.1:${port}`,
    get pid() {
      return child.pid as number;
    },
    async stop() {
      await end("SIGTERM");
      remove(dir);
    },
    kill: () => end("SIGKILL"),
    pause: () => void child.kill("SIGSTOP"),
    resume: () => void child.kill("SIGCONT"),
    async restart() {
      await end("SIGKILL");
      ({ child } = await bindSomewhere(binary, dir, {
        ...options,
        port,
        ...(busPort === undefined ? {} : { busPort }),
      }));
    },
  };
}

interface Bound {
  child: ChildProcess;
  port: number;
  busPort: number | undefined;
}

/** Somebody else may take a free port before the server binds it, so a failed start is tried again. */
async function bindSomewhere(
  binary: string,
  dir: string,
  options: ServerOptions & { busPort?: number },
): Promise<Bound> {
  for (let attempt = 1; ; attempt++) {
    const port = options.port ?? (await freePort());
    const busPort = options.busPort ?? (options.cluster ? await freePort() : undefined);
    const bus = busPort ? ["--cluster-enabled", "yes", "--cluster-port", `${busPort}`] : [];
    const args = [...commonArgs(port, dir), ...bus, ...(options.args ?? [])];
    const env = { ...process.env, ...options.env };
    const child = spawn(binary, args, { stdio: ["ignore", "pipe", "pipe"], env });
    running.add(child);
    child.once("exit", () => running.delete(child));
    try {
      await ready(child, port);
      return { child, port, busPort };
    } catch (error) {
      child.kill("SIGKILL");
      const taken = String(error).includes("in use");
      if (!taken || attempt === 10) throw error;
    }
  }
}

function commonArgs(port: number, dir: string): string[] {
  const place = ["--bind", "127.0.0.1", "--port", `${port}`, "--dir", dir];
  return [...place, "--save", "", "--appendonly", "no", "--daemonize", "no"];
}

/**
 * Waits for the server's own word that it listens before it is asked: a PING alone might be answered
 * by the stranger who took the port.
 */
async function ready(child: ChildProcess, port: number): Promise<void> {
  let log = "";
  let failure: Error | undefined;
  const note = (chunk: Buffer): void => {
    if (log.length < 20_000) log += chunk.toString();
  };
  // Reading never stops: a server whose log nobody reads blocks when the pipe is full.
  child.stdout?.on("data", note);
  child.stderr?.on("data", note);
  child.once("error", (error) => {
    failure = error;
  });
  await until(
    async () => {
      if (failure) throw failure;
      if (hasEnded(child)) throw new Error(`The Redis server ended at once:\n${log}`);
      return log.includes("Ready to accept connections") && (await answersPing(port));
    },
    { what: `a Redis server on port ${port}`, boundMs: 30_000, everyMs: 10 },
  );
}

function hasEnded(child: ChildProcess): boolean {
  return child.exitCode !== null || child.signalCode !== null;
}

/** Whether a server on this port answers PING. "Not authenticated" is an answer; "still loading" is not. */
export function answersPing(port: number): Promise<boolean> {
  return answers(port, "PING\r\n", /^\+PONG|^-NOAUTH/);
}

/** Whether the reply to a command, within a second, is like this. */
export function answers(port: number, command: string, like: RegExp): Promise<boolean> {
  return new Promise((resolve) => {
    const socket = createConnection({ port, host: "127.0.0.1" });
    const done = (answered: boolean): void => {
      socket.destroy();
      resolve(answered);
    };
    socket.setTimeout(1_000, () => done(false));
    socket.once("error", () => done(false));
    socket.once("close", () => done(false));
    socket.once("data", (reply) => done(like.test(reply.toString())));
    socket.write(command);
  });
}
