import { Child } from "../../support/child.ts";
import type { Answer, FromServer, ServerSettings, Submit } from "./server-process.ts";

const script = new URL("./server-process.ts", import.meta.url);

/** One server of the shop. One that was killed comes back, as under a supervisor. */
export class Server {
  readonly #settings: ServerSettings;
  readonly #asked = new Map<number, (answer: Answer) => void>();
  #child: Child<FromServer, Submit> | undefined;
  #isUp = false;
  #isOver = false;

  private constructor(settings: ServerSettings) {
    this.#settings = settings;
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
      this.#child?.send(submit, () => {
        if (this.#asked.delete(submit.number)) resolve({ kind: "refused" });
      });
    });
  }

  kill(): void {
    this.#child?.signal("SIGKILL");
  }

  async stop(): Promise<void> {
    this.#isOver = true;
    await this.#child?.kill();
  }

  async #run(): Promise<void> {
    const child = new Child<FromServer, Submit>(script, [JSON.stringify(this.#settings)]);
    this.#child = child;
    child.onMessage((message) => {
      if ("ready" in message) return;
      this.#asked.get(message.number)?.(message.answer);
      this.#asked.delete(message.number);
    });
    void child.exit.then(() => {
      this.#isUp = false;
      for (const answer of this.#asked.values()) answer({ kind: "died" });
      this.#asked.clear();
      if (!this.#isOver) void this.#run();
    });
    await Promise.race([child.next(), child.exit]);
    this.#isUp = !child.hasEnded;
  }
}
