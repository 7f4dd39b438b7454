import { SubmitLock, type SubmitLockOptions } from "../../../src/index.ts";
import { RedisStore } from "../../../src/stores/redis/redis-store.ts";
import { SimulatedClient } from "./network/simulated-client.ts";
import {
  type ClientOptions,
  type CommandFate,
  calm,
  ioredisDefaults,
  type ScriptCall,
} from "./network/surroundings.ts";
import { nameOf, type ScriptName } from "./scripts.ts";
import { nobody, SimulatedRedis } from "./server/simulated-redis.ts";
import { EventLoop, installVirtualTime, Machine, on } from "./time/event-loop.ts";
import { Noise } from "./time/random.ts";

export interface Written {
  readonly name: ScriptName;
  readonly atMs: number;
  readonly on: "first" | "second";
}

/** What becomes of a command on its way, and of its answer. */
type Fate = Partial<CommandFate>;

/**
 * A lock on a simulated client and server, for what is a matter of time: a bound is to the
 * millisecond, and minutes cost nothing. The simulated client and server are checked against
 * ioredis and Redis.
 */
export class VirtualFixture {
  readonly server: SimulatedRedis;
  readonly lock: SubmitLock;
  readonly written: Written[] = [];
  readonly clients = new Set<SimulatedClient>();
  readonly #loop = new EventLoop(new Noise(0));
  readonly #machine = new Machine(this.#loop, "process", { runsJavaScript: true });
  #cutOffUntil = 0;
  readonly #fates: { readonly name: ScriptName; readonly fate: Fate }[] = [];

  constructor(options: Partial<SubmitLockOptions> = {}, client: Partial<ClientOptions> = {}) {
    installVirtualTime();
    this.server = new SimulatedRedis(this.#loop, 1, nobody);
    this.lock = on(this.#machine, () => {
      const redis = new SimulatedClient(
        {
          ...calm(this.#loop, this.#machine, this.server),
          clients: this.clients,
          cutOffUntil: () => this.#cutOffUntil,
          nextFate: (of, call) => this.#fateOf(of, call),
        },
        { ...ioredisDefaults, ...client },
      );
      void redis.connect();
      return new SubmitLock({ store: new RedisStore(redis), ...options });
    });
  }

  /** The right time since the beginning, in milliseconds. */
  get now(): number {
    return this.#loop.now;
  }

  /** The writes of one script so far. */
  writesOf(name: ScriptName): Written[] {
    return this.written.filter((write) => write.name === name);
  }

  /** The next write of this script that has no fate yet. */
  befalls(name: ScriptName, fate: Fate): void {
    this.#fates.push({ name, fate });
  }

  /** Runs code in the process, and lets time pass until it has settled. */
  async run<Result>(code: () => Result | Promise<Result>): Promise<Result> {
    let settled = false;
    const result = new Promise<Result>((resolve, reject) => {
      this.#machine.after(0, () => {
        const running = (async () => await code())();
        running.then(resolve, reject);
        running.catch(() => {}).finally(() => (settled = true));
      });
    });
    await this.#loop.until(() => settled);
    return await result;
  }

  /** What the process sees at this moment. */
  look<Result>(code: () => Result): Result {
    return on(this.#machine, code);
  }

  async pass(ms: number): Promise<void> {
    await this.#machine.pass(ms);
  }

  /** Lets time pass until something holds, and no longer than `boundMs`. */
  async passUntil(isSo: () => boolean, boundMs = 600_000): Promise<void> {
    const until = this.now + boundMs;
    this.#machine.after(boundMs, () => {});
    await this.#loop.until(() => this.look(isSo) || this.now >= until);
  }

  /** The process does nothing for so long: its event loop stands still, and what comes waits. */
  block(ms: number): void {
    this.#machine.pause(ms);
  }

  /** No connection comes up for so long. */
  cutOff(ms: number): void {
    this.#cutOffUntil = this.now + ms;
  }

  /** Every connection is reset, and what is on its way arrives nevertheless. */
  reset(): void {
    for (const client of this.clients) {
      const { connection } = client;
      this.#machine.after(0, () => client.lose(connection, true));
    }
  }

  #fateOf(client: SimulatedClient, { script }: ScriptCall): CommandFate | undefined {
    const name = nameOf(script);
    this.written.push({ name, atMs: this.now, on: client.isSecond ? "second" : "first" });
    const planned = this.#fates.find((one) => one.name === name);
    if (planned === undefined) return undefined;
    this.#fates.splice(this.#fates.indexOf(planned), 1);
    const none = { requestMs: 0, replyMs: 0, resetMs: undefined, stillLands: true };
    return { ...none, oddAnswer: false, ...planned.fate };
  }
}
