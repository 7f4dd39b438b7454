import { SimulatedRedis } from "../server/simulated-redis.ts";
import { EventLoop, on } from "../time/event-loop.ts";
import { Machine } from "../time/machine.ts";
import { Noise } from "../time/random.ts";
import { ioredisDefaults } from "./client-options.ts";
import type { Connection } from "./connection.ts";
import { disconnectTimeoutMs, type ScriptOptions, type Step } from "./script.ts";
import { SimulatedClient } from "./simulated-client.ts";
import { Subject } from "./subject.ts";
import { type CommandFate, nobody, noClientWatcher, type Surroundings } from "./surroundings.ts";

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
  readonly #clients = new Set<SimulatedClient>();
  readonly #holds = new Map<string, "request" | "reply">();
  /** Connections on which a request waits for the release. */
  readonly #holding = new WeakSet<Connection>();
  #releaseAt = heldMs;

  constructor({ lazyConnect, retryMs, ...options }: ScriptOptions) {
    super();
    this.#server.keys.set(this.listKey, ["element"], undefined);
    on(this.#machine, () => {
      const client = new SimulatedClient(this.#around(), {
        ...ioredisDefaults,
        ...options,
        disconnectTimeout: disconnectTimeoutMs,
        retryStrategy: () => retryMs,
      });
      this.watch("first", client);
      if (!lazyConnect) void client.connect();
    });
  }

  /** One step, and everything that follows from it. */
  async play(step: Step): Promise<void> {
    const isRelease = "release" in step;
    // What was held arrives before anything else of that moment.
    if (isRelease) await this.#runUntil(this.#releaseAt);
    this.#machine.after(0, () => this.perform(step));
    await this.settle();
    if (isRelease) this.#releaseAt = this.#loop.now + heldMs;
  }

  async settle(): Promise<void> {
    await this.#runUntil(this.#loop.now + settledMs);
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

  async #runUntil(time: number): Promise<void> {
    // Something to do then: the loop goes on from one thing to the next.
    this.#machine.after(time - this.#loop.now, () => {});
    await this.#loop.until(() => this.#loop.now >= time);
  }

  #around(): Surroundings {
    return {
      loop: this.#loop,
      machine: this.#machine,
      server: this.#server,
      clients: this.#clients,
      latency: () => 0.5,
      cutOffUntil: () => 0,
      nextFate: (client, { args }) => this.#fateOf(client, String(args.at(-1))),
      watcher: noClientWatcher,
    };
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
