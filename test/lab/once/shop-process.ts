import { Child } from "../../support/child.ts";
import type { Hello } from "./library.ts";

/** A shop that can be killed. */
export class ShopProcess {
  readonly hello: Hello;
  readonly port: number;
  readonly #child: Child<Hello>;

  private constructor(child: Child<Hello>, hello: Hello, port: number) {
    this.#child = child;
    this.hello = hello;
    this.port = port;
  }

  static async start(module: URL, port: number, redisUrl: string): Promise<ShopProcess> {
    const script = new URL("./server.ts", import.meta.url);
    const env = { NODE_ENV: "production" };
    const child = new Child<Hello>(script, [module.href, `${port}`, redisUrl], { env });
    return new ShopProcess(child, await child.next(20_000), port);
  }

  /** True also of a process that ended by itself. */
  get hasEnded(): boolean {
    return this.#child.hasEnded;
  }

  /** SIGKILL: nothing of it is finished. */
  async kill(): Promise<void> {
    await this.#child.kill();
  }
}
