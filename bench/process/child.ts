import { type ChildProcess, fork } from "node:child_process";
import { once } from "node:events";
import { fileURLToPath } from "node:url";

export type FromChild<Hello, Result> =
  | { readonly hello: Hello }
  | { readonly result: Result }
  | { readonly error: string };

/**
 * A process that does one job at a time. Each library and each server under test has one of its
 * own, so that none runs on code that was optimised for another, or waits for its garbage.
 */
export class Child<Job, Result, Hello = null> {
  readonly #process: ChildProcess;
  readonly hello: Hello;

  private constructor(child: ChildProcess, hello: Hello) {
    this.#process = child;
    this.hello = hello;
  }

  /** Resolves when the process says that it is ready. */
  static async start<Job, Result, Hello = null>(
    script: URL,
    args: readonly string[],
    flags: readonly string[] = [],
  ): Promise<Child<Job, Result, Hello>> {
    const child = fork(fileURLToPath(script), args, {
      execArgv: [...process.execArgv, ...flags],
      env: { ...process.env, NODE_ENV: "production" },
    });
    const first = await answerOf<Hello, Result>(child);
    if (!("hello" in first)) throw new Error("the process did not say that it is ready");
    return new Child<Job, Result, Hello>(child, first.hello);
  }

  async run(job: Job): Promise<Result> {
    const answer = answerOf<Hello, Result>(this.#process);
    this.#process.send(job as object);
    const message = await answer;
    if ("result" in message) return message.result;
    throw new Error("error" in message ? message.error : "the process gave an odd answer");
  }

  async stop(): Promise<void> {
    if (this.#process.exitCode !== null || this.#process.signalCode !== null) return;
    const exited = once(this.#process, "exit");
    this.#process.kill("SIGKILL");
    await exited;
  }
}

/** Longer than any job of the bench, so that a process that hangs ends the run and says so. */
const patienceMs = 120_000;

function answerOf<Hello, Result>(child: ChildProcess): Promise<FromChild<Hello, Result>> {
  return new Promise((resolve, reject) => {
    const late = setTimeout(() => {
      stop();
      child.kill("SIGKILL");
      reject(new Error(`a process of the bench was silent for ${patienceMs / 1_000} s`));
    }, patienceMs);
    const stop = (): void => {
      clearTimeout(late);
      child.off("message", answered);
      child.off("exit", ended);
    };
    const answered = (message: FromChild<Hello, Result>): void => {
      stop();
      resolve(message);
    };
    const ended = (code: number | null): void => {
      stop();
      reject(new Error(`a process of the bench ended with ${code}`));
    };
    child.on("message", answered);
    child.on("exit", ended);
  });
}
