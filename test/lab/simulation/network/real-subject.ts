import { setImmediate as nextTurn } from "node:timers/promises";
import { Redis } from "ioredis";
import { command } from "../../../support/command.ts";
import { freshUser } from "../../../support/ids.ts";
import { type RedisProxy, startProxy } from "../../../support/proxy.ts";
import type { RedisServer } from "../../../support/server-process.ts";
import { until } from "../../../support/until.ts";
import { disconnectTimeoutMs, type ScriptOptions, type Step } from "./script.ts";
import { Subject } from "./subject.ts";

/** ioredis itself under a script, with a proxy between it and a real server. */
export class RealSubject extends Subject {
  protected readonly listKey: string;
  readonly #prefix = freshUser();
  readonly #server: RedisServer;
  readonly #proxy: RedisProxy;
  readonly #holds = new Map<string, "request" | "reply">();

  static async open(server: RedisServer, options: ScriptOptions): Promise<RealSubject> {
    const proxy = await startProxy(server.port);
    const subject = new RealSubject(server, proxy, options);
    await command(server.port, "RPUSH", subject.listKey, "element");
    return subject;
  }

  private constructor(server: RedisServer, proxy: RedisProxy, options: ScriptOptions) {
    super();
    this.listKey = `${this.#prefix} list`;
    this.#server = server;
    this.#proxy = proxy;
    const { commandTimeout, retryMs, ...others } = options;
    const client = new Redis(proxy.port, "127.0.0.1", {
      ...others,
      ...(commandTimeout === undefined ? {} : { commandTimeout }),
      disconnectTimeout: disconnectTimeoutMs,
      retryStrategy: () => retryMs,
    });
    this.watch("first", client);
  }

  get written(): string[] {
    return this.#proxy.commands.filter(([name]) => name === "eval").map((argv) => `${argv.at(-1)}`);
  }

  /** One step, and what follows from it, as far as it is expected. */
  async play(step: Step, expected: Subject): Promise<void> {
    // In a turn of its own, as what comes from the network.
    setImmediate(() => this.perform(step));
    await nextTurn();
    await this.catchUp(expected);
  }

  /** Waits until as much has happened as there is to happen, whatever that is. */
  async catchUp(expected: Subject): Promise<void> {
    const isLevel = () =>
      this.logs.first.length >= expected.logs.first.length &&
      this.logs.second.length >= expected.logs.second.length &&
      this.written.length >= expected.written.length &&
      this.statuses.join() === expected.statuses.join();
    // Whoever compares will see what is missing.
    await until(isLevel, { what: "ioredis", boundMs: 10_000, everyMs: 1 }).catch(() => {});
  }

  async close(): Promise<void> {
    this.#server.resume();
    this.disconnectAll();
    await this.#proxy.stop();
  }

  protected nowMs(): number {
    return Date.now();
  }

  protected keyOf(name: string): string {
    return `${this.#prefix} ${name}`;
  }

  protected hold(name: string, what: "request" | "reply"): void {
    this.#holds.set(name, what);
    const isCall = (argv: string[]): boolean =>
      argv.at(-1) === name && this.#holds.get(name) === what && this.#holds.delete(name);
    const { holdRequestOnce, holdReplyOnce } = this.#proxy;
    void (what === "request" ? holdRequestOnce : holdReplyOnce)(isCall);
  }

  protected silence(): void {
    this.#server.pause();
  }

  protected release(): void {
    this.#holds.clear();
    this.#proxy.releaseHeld();
    this.#server.resume();
  }

  protected reset(lands: boolean): void {
    if (lands) this.#proxy.resetClients();
    else this.#proxy.resetAll();
  }

  protected refuse(on: boolean): void {
    void this.#proxy.refuse(on);
  }
}
