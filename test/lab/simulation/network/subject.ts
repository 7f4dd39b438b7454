import fc from "fast-check";
import type { IoredisClient } from "../../../../src/stores/redis/clients/ioredis.ts";
import { openSecond } from "../../../../src/stores/redis/clients/second-ioredis.ts";
import { acquireScript } from "../../../../src/stores/redis/commands/acquire.ts";

/** One thing that happens to a client, or to the network and the server behind it. */
export type Step =
  /** A script call about a key of its own; what is held waits for `release`, with all behind it. */
  | { readonly ask: Who; readonly held?: "request" | "reply"; readonly fails?: true }
  | { readonly connect: Who }
  /** `asks`: a call follows in the same turn. */
  | { readonly disconnect: Who; readonly asks?: true }
  /** The second connection, as the store opens it. */
  | { readonly duplicate: true }
  /** The server stands still: connections are accepted, and nothing is answered until `release`. */
  | { readonly silence: true }
  | { readonly release: true }
  /** Every connection is reset; `lands` says whether what is on its way to the server still arrives. */
  | { readonly reset: { readonly lands: boolean } }
  /** So many attempts to connect are refused from now on, as long as there is one client only. */
  | { readonly refuse: number };

/** The user's own client, and the second one of the store. */
export type Who = "first" | "second";

export interface ScriptOptions {
  readonly autoResendUnfulfilledCommands: boolean;
  readonly enableOfflineQueue: boolean;
  readonly maxRetriesPerRequest: number;
  readonly commandTimeout: number | undefined;
  readonly lazyConnect: boolean;
  readonly retryMs: number;
}

export interface Script {
  readonly options: ScriptOptions;
  readonly steps: readonly Step[];
}

const retryMs = 10;
/** Longer than any script. */
export const neverMs = 2 ** 31 - 1;
/** How long a client that was told to disconnect waits for the other end. */
export const disconnectTimeoutMs = 60;
/** Long enough for a command that nobody holds on a machine that is busy. */
export const commandTimeoutMs = 600;

const who = fc.constantFrom<Who>("first", "first", "first", "second");

const step: fc.Arbitrary<Step> = fc.oneof(
  {
    weight: 8,
    arbitrary: fc.record(
      { ask: who, held: fc.constantFrom("request", "reply"), fails: fc.constant(true) },
      { requiredKeys: ["ask"] },
    ),
  },
  { weight: 3, arbitrary: fc.record({ connect: who }) },
  {
    weight: 2,
    arbitrary: fc.record(
      { disconnect: who, asks: fc.constant(true) },
      { requiredKeys: ["disconnect"] },
    ),
  },
  { weight: 2, arbitrary: fc.constant<Step>({ duplicate: true }) },
  { weight: 2, arbitrary: fc.constant<Step>({ silence: true }) },
  { weight: 4, arbitrary: fc.constant<Step>({ release: true }) },
  { weight: 4, arbitrary: fc.record({ reset: fc.record({ lands: fc.boolean() }) }) },
  { weight: 2, arbitrary: fc.record({ refuse: fc.integer({ min: 1, max: 3 }) }) },
);

export const usual: ScriptOptions = {
  autoResendUnfulfilledCommands: true,
  enableOfflineQueue: true,
  maxRetriesPerRequest: 20,
  commandTimeout: undefined,
  lazyConnect: false,
  retryMs,
};

const options: fc.Arbitrary<ScriptOptions> = fc.record({
  autoResendUnfulfilledCommands: fc.constantFrom(true, true, false),
  enableOfflineQueue: fc.constantFrom(true, true, false),
  maxRetriesPerRequest: fc.constantFrom(20, 20, 1, 0),
  commandTimeout: fc.constant(undefined),
  lazyConnect: fc.constantFrom(false, false, false, true),
  retryMs: fc.constant(retryMs),
});

/**
 * A time-out also ends a handshake, again and again for as long as the server is silent: with one,
 * a client comes back only when it is told to.
 */
const impatient: fc.Arbitrary<ScriptOptions> = fc.record({
  autoResendUnfulfilledCommands: fc.boolean(),
  enableOfflineQueue: fc.boolean(),
  maxRetriesPerRequest: fc.constantFrom(20, 0),
  commandTimeout: fc.constant(commandTimeoutMs),
  lazyConnect: fc.boolean(),
  retryMs: fc.constant(neverMs),
});

export const scripts: fc.Arbitrary<Script> = fc.record({
  options: fc.oneof({ weight: 3, arbitrary: options }, { weight: 1, arbitrary: impatient }),
  steps: fc.array(step, { minLength: 1, maxLength: 10 }),
});

const events = ["connecting", "connect", "ready", "close", "reconnecting", "end"];

/** Reads a key as a string: an error where it is none. */
const wrongScript = "return redis.call('GET', KEYS[1])";

const hourMs = 3_600_000;

/** A client under a script, and everything that can be seen of it from outside. */
export abstract class Subject {
  /** What each client told and answered, in its order. */
  readonly logs: Record<Who, string[]> = { first: [], second: [] };
  /** The calls as they were written to the network, in their order for each client. */
  abstract readonly written: readonly string[];
  /** A key that holds no string. */
  protected abstract readonly listKey: string;
  protected isSilent = false;
  readonly #clients = new Map<Who, IoredisClient>();
  readonly #connecting = new Set<Who>();
  #refusalsLeft = 0;
  #asked = 0;

  /** The server's clock, in milliseconds. */
  protected abstract nowMs(): number;
  protected abstract keyOf(name: string): string;
  protected abstract hold(name: string, what: "request" | "reply"): void;
  protected abstract silence(): void;
  protected abstract release(): void;
  protected abstract reset(lands: boolean): void;
  protected abstract refuse(on: boolean): void;

  get statuses(): string[] {
    return [...this.#clients].map(([who, { status }]) => `${who} is "${status}"`);
  }

  /** Does what the step says, and does not wait for what follows from it. */
  protected perform(step: Step): void {
    if ("ask" in step) this.#ask(step);
    else if ("connect" in step)
      void this.#clients
        .get(step.connect)
        ?.connect()
        .catch(() => {});
    else if ("disconnect" in step) {
      this.#clients.get(step.disconnect)?.disconnect();
      if (step.asks) this.#ask({ ask: step.disconnect });
    } else if ("duplicate" in step) this.#duplicate();
    else if ("silence" in step) {
      this.isSilent = true;
      this.silence();
    } else if ("release" in step) {
      this.isSilent = false;
      this.release();
    }
    // What lies in the socket of a server that stands still is read when it goes on, reset or not.
    else if ("reset" in step) this.reset(step.reset.lands || this.isSilent);
    else this.#refuse(step.refuse);
  }

  protected watch(who: Who, client: IoredisClient): void {
    this.#clients.set(who, client);
    // Without a listener ioredis prints every failed reconnect.
    client.on("error", () => {});
    for (const event of events) {
      client.on(event, () => {
        this.logs[who].push(`${event}, and is "${client.status}"`);
        if (event === "connecting") this.#connecting.add(who);
        if (event === "connect") this.#connecting.delete(who);
        if (event === "close" && this.#connecting.delete(who)) this.#wasRefused();
      });
    }
  }

  protected disconnectAll(): void {
    for (const client of this.#clients.values()) client.disconnect();
  }

  #refuse(times: number): void {
    // With two of them it would be a matter of time whose attempts are counted.
    if (this.#clients.size > 1) return;
    this.#refusalsLeft = times;
    this.refuse(true);
  }

  #wasRefused(): void {
    if (this.#refusalsLeft === 0) return;
    this.#refusalsLeft--;
    if (this.#refusalsLeft === 0) this.refuse(false);
  }

  #duplicate(): void {
    const first = this.#clients.get("first");
    if (first === undefined || this.#clients.size > 1 || this.#refusalsLeft > 0) return;
    this.watch("second", openSecond(first, 0));
  }

  #ask({ ask, held, fails }: Extract<Step, { ask: Who }>): void {
    const client = this.#clients.get(ask);
    if (client === undefined) return;
    const log = this.logs[ask];
    const name = `${ask} ${++this.#asked}`;
    if (held !== undefined) this.hold(name, held);
    const deadline = Math.round(this.nowMs() + hourMs);
    const settings = [deadline, 2 * hourMs, hourMs, hourMs, 0, ":"];
    const answer = fails
      ? client.eval(wrongScript, 1, this.listKey, name)
      : // The script knows nothing of the last, by which the network knows the call.
        client.eval(acquireScript, 1, this.keyOf(name), ...settings, name.padEnd(36, "-"), name);
    answer.then(
      (value) => {
        const code = (value as number[])[2] as number;
        log.push(`${name} = ${code < -1e15 ? "mine" : code}`);
      },
      (error: Error) => {
        // What the server says goes on in words of its own.
        const text = error.name === "ReplyError" ? "" : `: ${error.message.split(" (")[0]}`;
        log.push(`${name} ! ${error.name}${text}`);
      },
    );
  }
}
