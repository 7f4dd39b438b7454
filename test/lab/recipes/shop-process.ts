import { Program } from "../../support/child.ts";
import { freePort } from "../../support/free-port.ts";
import type { Bank } from "./bank.ts";

/** Where to run what: a program and its arguments, in the folder of the project. */
export interface Command {
  readonly program: string;
  /** `$PORT` in them is the port, which the environment has as well. */
  readonly args: readonly string[];
  readonly folder: string;
}

/** Longer than any answer takes; a shop that lets a click through to a held bank gives none. */
const answerWithinMs = 30_000;

/** A shop of a recipe, in a process of its own. */
export class ShopProcess {
  readonly url: string;
  readonly #child: Program;

  private constructor(url: string, child: Program) {
    this.url = url;
    this.#child = child;
  }

  /** Resolves once it answers; rejects with what it printed if it ends or does not answer. */
  static async start(
    { program, args, folder }: Command,
    bank: Bank,
    redisPort: number,
  ): Promise<ShopProcess> {
    const port = await freePort();
    const redisUrl = `redis://127.0.0.1:${redisPort}`;
    const env = { REDIS_URL: redisUrl, PAYMENTS_URL: bank.url, PORT: `${port}` };
    const filled = args.map((arg) => arg.replace("$PORT", `${port}`));
    const child = new Program(program, filled, { cwd: folder, env: { ...process.env, ...env } });
    const shop = new ShopProcess(`http://127.0.0.1:${port}`, child);
    const answers = () =>
      fetch(shop.url).then(
        () => true,
        () => false,
      );
    await child.until(answers, "to answer");
    return shop;
  }

  /**
   * Posts an order of the user, as the recipes' shops without forms take it. Rejects after 30 s
   * without an answer.
   */
  order(user: string, { key, path = "/orders", signal }: OrderOptions = {}): Promise<Response> {
    const headers = new Headers({ "x-user-id": user, "content-type": "application/json" });
    if (key !== undefined) headers.set("idempotency-key", key);
    const body = JSON.stringify({ cart: 7 });
    const timeout = AbortSignal.timeout(answerWithinMs);
    const either = signal === undefined ? timeout : AbortSignal.any([timeout, signal]);
    return fetch(this.url + path, { method: "POST", headers, body, signal: either });
  }

  async stop(): Promise<void> {
    this.#child.kill();
    await this.#child.ended;
  }
}

export interface OrderOptions {
  readonly key?: string;
  readonly path?: string;
  readonly signal?: AbortSignal;
}
