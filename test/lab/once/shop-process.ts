import { type ChildProcess, fork } from "node:child_process";
import { once } from "node:events";
import { fileURLToPath } from "node:url";
import { atExit } from "../../support/at-exit.ts";
import type { Hello } from "./library.ts";

const root = fileURLToPath(new URL("../../..", import.meta.url));
const patienceMs = 20_000;

const running = new Set<ChildProcess>();
atExit(() => {
  for (const child of running) child.kill("SIGKILL");
});

/** A shop that can be killed. */
export class ShopProcess {
  readonly hello: Hello;
  readonly port: number;
  readonly #child: ChildProcess;

  private constructor(child: ChildProcess, hello: Hello, port: number) {
    this.#child = child;
    this.hello = hello;
    this.port = port;
  }

  static async start(module: URL, port: number, redisUrl: string): Promise<ShopProcess> {
    const script = fileURLToPath(new URL("./server.ts", import.meta.url));
    const child = fork(script, [module.href, `${port}`, redisUrl], {
      cwd: root,
      execArgv: ["--import", "tsx"],
      env: { ...process.env, NODE_ENV: "production" },
      // The libraries report on standard output what the lab sees for itself.
      stdio: ["ignore", "ignore", "pipe", "ipc"],
    });
    running.add(child);
    child.once("exit", () => running.delete(child));
    return new ShopProcess(child, await helloOf(child), port);
  }

  /** True also of a process that ended by itself. */
  get hasEnded(): boolean {
    return this.#child.exitCode !== null || this.#child.signalCode !== null;
  }

  /** SIGKILL: nothing of it is finished. */
  async kill(): Promise<void> {
    if (this.hasEnded) return;
    const exited = once(this.#child, "exit");
    this.#child.kill("SIGKILL");
    await exited;
  }
}

/** What the child says when it listens; its last words if it ends before. */
function helloOf(child: ChildProcess): Promise<Hello> {
  let words = "";
  child.stderr?.on("data", (chunk: Buffer) => {
    words = `${words}${chunk}`.slice(-2_000);
  });
  return new Promise((resolve, reject) => {
    const late = setTimeout(() => {
      child.kill("SIGKILL");
      reject(new Error(`A shop did not listen within ${patienceMs} ms.\n${words}`));
    }, patienceMs);
    child.once("message", (hello: Hello) => {
      clearTimeout(late);
      resolve(hello);
    });
    child.once("exit", (code) => {
      clearTimeout(late);
      reject(new Error(`A shop ended with ${code} before it listened.\n${words}`));
    });
  });
}
