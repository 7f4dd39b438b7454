import { type ChildProcess, fork } from "node:child_process";
import { once } from "node:events";
import { fileURLToPath } from "node:url";
import { atExit } from "../../support/at-exit.ts";
import type { Answer, FromServer, ServerSettings, Submit } from "./protocol.ts";

const script = fileURLToPath(new URL("./server-process.ts", import.meta.url));

/** One server of the shop. One that was killed comes back, as under a supervisor. */
export class Server {
  readonly #settings: ServerSettings;
  readonly #asked = new Map<number, (answer: Answer) => void>();
  #child: ChildProcess | undefined;
  #isUp = false;
  #isOver = false;

  private constructor(settings: ServerSettings) {
    this.#settings = settings;
    atExit(() => this.kill());
  }

  static async start(settings: ServerSettings): Promise<Server> {
    const server = new Server(settings);
    await server.#run();
    return server;
  }

  get isClockAhead(): boolean {
    return this.#settings.clockAheadMs > 0;
  }

  /** Refused where the server is not up; `died` where it is killed before it answers. */
  order(submit: Submit): Promise<Answer> {
    if (!this.#isUp) return Promise.resolve({ kind: "refused" });
    return new Promise((resolve) => {
      this.#asked.set(submit.number, resolve);
      // It may have been killed a moment ago, and its exit not been heard of.
      this.#child?.send(submit, (error) => {
        if (error && this.#asked.delete(submit.number)) resolve({ kind: "refused" });
      });
    });
  }

  kill(): void {
    this.#child?.kill("SIGKILL");
  }

  async stop(): Promise<void> {
    this.#isOver = true;
    const child = this.#child;
    if (child === undefined || child.exitCode !== null || child.signalCode !== null) return;
    child.kill("SIGKILL");
    await once(child, "exit");
  }

  async #run(): Promise<void> {
    const child = fork(script, [JSON.stringify(this.#settings)], {
      execArgv: ["--import", "tsx"],
      stdio: ["ignore", "ignore", "inherit", "ipc"],
    });
    this.#child = child;
    child.once("exit", () => {
      this.#isUp = false;
      for (const answer of this.#asked.values()) answer({ kind: "died" });
      this.#asked.clear();
      if (!this.#isOver) void this.#run();
    });
    const ready = new Promise<void>((resolve) => {
      child.on("message", (message: FromServer) => {
        if ("ready" in message) {
          this.#isUp = true;
          resolve();
        } else {
          this.#asked.get(message.number)?.(message.answer);
          this.#asked.delete(message.number);
        }
      });
      child.once("exit", () => resolve());
    });
    await ready;
  }
}
