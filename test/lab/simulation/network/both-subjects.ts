import { setImmediate as nextTurn } from "node:timers/promises";
import { Redis } from "ioredis";
import { command } from "../../../support/command.ts";
import { freshUser } from "../../../support/ids.ts";
import { type RedisProxy, startProxy } from "../../../support/proxy.ts";
import type { RedisServer } from "../../../support/server-process.ts";
import { until } from "../../../support/until.ts";
import { nobody, SimulatedRedis } from "../server/simulated-redis.ts";
import { EventLoop, Machine, on } from "../time/event-loop.ts";
import { Noise } from "../time/random.ts";
import type { Connection } from "./connection.ts";
import { SimulatedClient } from "./simulated-client.ts";
import { disconnectTimeoutMs, type ScriptOptions, type Step, Subject } from "./subject.ts";
import { type CommandFate, calm, ioredisDefaults, type Surroundings } from "./surroundings.ts";

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
      // Nobody hears of an execution whose reply is held.
      (this.isSilent || this.#proxy.isAnswered()) &&
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

/** What follows from a step has happened after that; only what is held takes longer. */
const settledMs = 5_000;
/** From one release to the next. */
const heldMs = 1_000_000;

class RefusingRedis extends SimulatedRedis {
  refuses = false;

  override get isDown(): boolean {
    return this.refuses;
  }
}

/** The simulated client under a script, in virtual time. */
export class SimulatedSubject extends Subject {
  readonly written: string[] = [];
  protected readonly listKey = "a list";
  readonly #loop = new EventLoop(new Noise(0));
  readonly #server = new RefusingRedis(this.#loop, 1, nobody);
  readonly #machine = new Machine(this.#loop, "client", { runsJavaScript: true });
  readonly #clients: Set<SimulatedClient>;
  readonly #holds = new Map<string, "request" | "reply">();
  /** Connections on which a request waits for the release. */
  readonly #holding = new WeakSet<Connection>();
  #releaseAt = heldMs;

  constructor({ lazyConnect, retryMs, ...options }: ScriptOptions) {
    super();
    this.#server.keys.set(this.listKey, ["element"], undefined);
    const around = calm(this.#loop, this.#machine, this.#server);
    this.#clients = around.clients;
    const nextFate: Surroundings["nextFate"] = (client, { args }) =>
      this.#fateOf(client, String(args.at(-1)));
    on(this.#machine, () => {
      const client = new SimulatedClient(
        { ...around, nextFate },
        {
          ...ioredisDefaults,
          ...options,
          disconnectTimeout: disconnectTimeoutMs,
          retryStrategy: () => retryMs,
        },
      );
      this.watch("first", client);
      if (!lazyConnect) void client.connect();
    });
  }

  /** One step, and everything that follows from it. */
  async play(step: Step): Promise<void> {
    const isRelease = "release" in step;
    // What was held arrives before anything else of that moment.
    if (isRelease) await this.#machine.pass(this.#releaseAt - this.#loop.now);
    this.#machine.after(0, () => this.perform(step));
    await this.settle();
    if (isRelease) this.#releaseAt = this.#loop.now + heldMs;
  }

  async settle(): Promise<void> {
    await this.#machine.pass(settledMs);
  }

  protected nowMs(): number {
    return this.#server.nowMs;
  }

  protected keyOf(name: string): string {
    return name;
  }

  protected hold(name: string, what: "request" | "reply"): void {
    this.#holds.set(name, what);
  }

  protected silence(): void {
    this.#server.machine.pause(this.#releaseAt - this.#loop.now);
  }

  /** `play` has let the time pass. */
  protected release(): void {
    this.#holds.clear();
  }

  protected reset(lands: boolean): void {
    for (const client of this.#clients) client.lose(client.connection, lands);
  }

  protected refuse(on: boolean): void {
    this.#server.refuses = on;
  }

  #fateOf(client: SimulatedClient, name: string): CommandFate | undefined {
    this.written.push(name);
    const held = this.#holds.get(name);
    const connection = client.connection;
    if (held === undefined || connection === undefined) return undefined;
    this.#holds.delete(name);
    const ms = this.#releaseAt - this.#loop.now;
    // A reply to a request that has not arrived is late anyway.
    const isRequest = held === "request" || this.isSilent || this.#holding.has(connection);
    if (isRequest) this.#holding.add(connection);
    return {
      requestMs: isRequest ? ms : 0,
      replyMs: isRequest ? 0 : ms,
      resetMs: undefined,
      stillLands: false,
      oddAnswer: false,
    };
  }
}
