import { Child as Process } from "../../test/support/child.ts";

export type FromChild<Hello, Result> =
  | { readonly hello: Hello }
  | { readonly result: Result }
  | { readonly error: string };

/**
 * A process that does one job at a time. Each library and each server under test has one of its
 * own, so that none runs on code that was optimised for another, or waits for its garbage.
 */
export class Child<Job, Result, Hello = null> {
  readonly #process: Process<FromChild<Hello, Result>, object>;
  readonly hello: Hello;

  private constructor(process: Process<FromChild<Hello, Result>, object>, hello: Hello) {
    this.#process = process;
    this.hello = hello;
  }

  /** Resolves when the process says that it is ready. */
  static async start<Job, Result, Hello = null>(
    script: URL,
    args: readonly string[],
    flags: readonly string[] = [],
  ): Promise<Child<Job, Result, Hello>> {
    const env = { NODE_ENV: "production" };
    const process = new Process<FromChild<Hello, Result>, object>(script, args, { flags, env });
    const first = await process.next();
    if (!("hello" in first)) throw new Error("the process did not say that it is ready");
    return new Child<Job, Result, Hello>(process, first.hello);
  }

  async run(job: Job): Promise<Result> {
    this.#process.send(job as object);
    const message = await this.#process.next();
    if ("result" in message) return message.result;
    throw new Error("error" in message ? message.error : "the process gave an odd answer");
  }

  async stop(): Promise<void> {
    await this.#process.kill();
  }
}
