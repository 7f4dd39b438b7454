import { type EventLoop, Machine } from "../time/event-loop.ts";
import { longestOverdueMs, Replication } from "./replication.ts";
import { type Memory, ReplyError, runScript } from "./script-runner.ts";

/** What a key holds: a string, or something that is none. */
export interface Entry {
  readonly value: string | readonly string[];
  /** By the server's wall clock, in whole milliseconds; `undefined` for ever. */
  expiresAt: number | undefined;
}

/** The simulation's records are text. */
type ScriptArguments = readonly (string | number | Uint8Array)[];

/** What is told about every change of a key. */
export interface KeyWatcher {
  set(key: string, value: string, expiresAt: number | undefined): void;
  lengthened(key: string, value: string, expiresAt: number): void;
  deleted(key: string, value: string): void;
  expired(key: string, value: string): void;
}

/** Where nobody watches what becomes of keys. */
export const nobody: KeyWatcher = { set() {}, lengthened() {}, deleted() {}, expired() {} };

/** What a key holds from now on; `undefined` for nothing. */
type Changed = (key: string, entry: Entry | undefined) => void;

/** The keys of a server, as GET, SET, PTTL, PEXPIRE and DEL see them. */
export class Keys {
  readonly #entries = new Map<string, Entry>();
  readonly #watcher: KeyWatcher;
  readonly #changed: Changed;

  constructor(watcher: KeyWatcher, changed: Changed = () => {}) {
    this.#watcher = watcher;
    this.#changed = changed;
  }

  names(): IterableIterator<string> {
    return this.#entries.keys();
  }

  /** Redis counts a key as expired once its clock has passed the time, not when it has reached it. */
  live(key: string, now: number): Entry | undefined {
    const entry = this.#entries.get(key);
    if (entry?.expiresAt === undefined || now <= entry.expiresAt) return entry;
    this.#entries.delete(key);
    if (typeof entry.value === "string") {
      this.#watcher.expired(key, entry.value);
      this.#changed(key, undefined);
    }
    return undefined;
  }

  set(key: string, value: string | readonly string[], expiresAt: number | undefined): void {
    this.#entries.set(key, { value, expiresAt });
    if (typeof value !== "string") return;
    this.#watcher.set(key, value, expiresAt);
    this.#changed(key, { value, expiresAt });
  }

  expire(key: string, now: number, expiresAt: number): 0 | 1 {
    const entry = this.live(key, now);
    if (entry === undefined) return 0;
    entry.expiresAt = expiresAt;
    if (typeof entry.value === "string") {
      this.#watcher.lengthened(key, entry.value, expiresAt);
      this.#changed(key, entry);
    }
    return 1;
  }

  remaining(key: string, now: number): number {
    const entry = this.live(key, now);
    if (entry === undefined) return -2;
    return entry.expiresAt === undefined ? -1 : entry.expiresAt - now;
  }

  delete(key: string, now: number): 0 | 1 {
    const entry = this.live(key, now);
    if (entry === undefined) return 0;
    this.#entries.delete(key);
    if (typeof entry.value === "string") {
      this.#watcher.deleted(key, entry.value);
      this.#changed(key, undefined);
    }
    return 1;
  }

  /** What a key holds, also where its time is over and nobody has looked since. */
  kept(key: string): Entry | undefined {
    return this.#entries.get(key);
  }

  /** A replica takes over, or the server restarts without persistence: nobody is told. */
  replace(entries: ReadonlyMap<string, Entry>): void {
    this.#entries.clear();
    for (const [key, entry] of entries) this.#entries.set(key, entry);
  }
}

/** A Redis server in virtual time: its keys, its clock, and what may happen to it. */
export class SimulatedRedis {
  readonly machine: Machine;
  readonly keys: Keys;
  /** Counts restarts: whatever was known of an earlier life is lost. */
  life = 0;
  /** Counts restarts and failovers: no connection outlives one. */
  term = 0;
  /** By how much its wall clock was set back, all in all. */
  setBackMs = 0;
  /** When that happened last, in the time of the loop. */
  setBackAt: number = Number.NEGATIVE_INFINITY;
  /** Its scripts were flushed. */
  hasForgotten = false;
  #memory: { readonly until: number; readonly state: Memory } | undefined;
  #movingUntil = 0;
  /** While its slots move: the keys that the other node has. */
  readonly #moved = new Set<string>();
  #downUntil = 0;
  #selectRefusedUntil = 0;
  #refusal: { readonly until: number; readonly text: string } | undefined;
  /** What it has seen the text of: EVALSHA finds no other. */
  readonly #scripts = new Set<string>();
  readonly #loop: EventLoop;
  /** Keys run out while the server is paused as well: nobody can see them until it goes on. */
  readonly #physics: Machine;
  readonly replica: Machine;
  readonly #replication: Replication | undefined;
  /** What is in database 0 where the locks are in another one. */
  readonly #elsewhere = new Keys(nobody);
  /** What a client writes to find out whether a call may have the keys of many locks: unwatched. */
  readonly #asked = new Keys(nobody);
  /** The database of the locks. */
  database = 0;
  /** Two servers are behind its address: a proxy sends a call where its first key is. */
  sharded: "by a proxy" | "in cluster mode" | undefined;

  /** @param lagMs how far behind its replica is; `undefined` where it has none. */
  constructor(loop: EventLoop, rate: number, watcher: KeyWatcher, lagMs?: number) {
    this.#loop = loop;
    this.machine = new Machine(loop, "Redis", { rate });
    this.#physics = new Machine(loop, "physics");
    this.replica = new Machine(loop, "replica");
    if (lagMs !== undefined) {
      this.#replication = new Replication(this.machine, this.replica, lagMs);
    }
    this.keys = new Keys(watcher, (key, entry) => {
      this.#replication?.changed(key, entry);
      this.#watchExpiry(key, entry?.expiresAt);
    });
  }

  get nowMs(): number {
    return Math.floor(this.machine.wallMs());
  }

  get isDown(): boolean {
    return this.#downUntil > this.#loop.now;
  }

  get memory(): Memory {
    const { until = 0, state = "enough" } = this.#memory ?? {};
    return until > this.#loop.now ? state : "enough";
  }

  get isMoving(): boolean {
    return this.#movingUntil > this.#loop.now;
  }

  /** Whether it has moved its slots, or does so now. */
  get hasMoved(): boolean {
    return this.#movingUntil > 0;
  }

  look(key: string): Entry | undefined {
    return this.keys.live(key, this.nowMs);
  }

  /** The right time at which a key that expires then is gone. */
  goneAt(expiresAt: number): number {
    return this.machine.whenWallShows(expiresAt + 1);
  }

  /** SCRIPT FLUSH */
  forgetScripts(): void {
    this.hasForgotten = true;
    this.#scripts.clear();
  }

  /** EVAL, or EVALSHA of the script's digest. */
  evaluate(
    script: string,
    keyNames: readonly string[],
    args: ScriptArguments,
    byDigest = false,
  ): unknown {
    if (this.#refusal !== undefined) throw new ReplyError(this.#refusal.text);
    if (this.isMoving && keyNames.length > 1) {
      throw new ReplyError("TRYAGAIN Multiple keys request during rehashing of slot");
    }
    if (byDigest && !this.#scripts.has(script)) {
      throw new ReplyError("NOSCRIPT No matching script. Please use EVAL.");
    }
    this.#scripts.add(script);
    const nowUs = Math.floor(this.machine.wallMs() * 1_000);
    const { memory } = this;
    const moved = this.isMoving ? this.#moved : undefined;
    const [first = ""] = keyNames;
    const home = homeOf(first);
    const isStrange = (key: string) => this.sharded !== undefined && homeOf(key) !== home;
    if (this.sharded === "in cluster mode" && keyNames.some(isStrange)) {
      throw new ReplyError("CROSSSLOT Keys in request don't hash to the same slot");
    }
    const names = keyNames.map((key) => (isStrange(key) ? `${key} at ${home}` : key));
    const evaluation = { script, keyNames: names, args, nowUs, memory, moved };
    const keys = first.includes(":shared-") ? this.#asked : this.keys;
    const run = () => runScript(keys, evaluation);
    return this.#replication === undefined ? run() : this.#replication.together(run);
  }

  /** SELECT, of a database of the locks' or of 0. */
  select(connection: { database: number }, database: number): string {
    if (this.#selectRefusedUntil > this.#loop.now) throw new ReplyError("BUSY Redis is busy");
    connection.database = database;
    return "OK";
  }

  /** Answers every SELECT with an error. */
  refuseSelect(forMs: number): void {
    this.#selectRefusedUntil = Math.max(this.#selectRefusedUntil, this.#loop.now + forMs);
  }

  isElsewhere(connection: { readonly database: number }): boolean {
    return connection.database !== this.database;
  }

  /** EVAL in another database than that of the locks, which nobody watches. */
  evaluateElsewhere(script: string, keyNames: readonly string[], args: ScriptArguments): unknown {
    const nowUs = Math.floor(this.machine.wallMs() * 1_000);
    return runScript(this.#elsewhere, { script, keyNames, args, nowUs, memory: this.memory });
  }

  /** Of its last write, in the order of its writes. */
  get offset(): number {
    return this.#replication?.offset ?? 0;
  }

  /**
   * WAIT: counts the replicas that have a write.
   *
   * @param offset of the last write of the connection that it was sent on; 0 for none.
   * @param answer called once at most, unless it is refused.
   */
  wait(
    offset: number,
    replicas: number,
    forMs: number,
    answer: (count: number) => void,
  ): ReplyError | undefined {
    if (this.#refusal !== undefined) return new ReplyError(this.#refusal.text);
    const overdueMs = this.#loop.noise.deviation(0, longestOverdueMs);
    this.#replication?.wait(offset, replicas, forMs, overdueMs, answer);
    return undefined;
  }

  restart(downMs: number): void {
    this.life++;
    this.keys.replace(new Map());
    this.#replication?.clear();
    this.#replaced(downMs);
  }

  /** The master is lost, and its replica takes over with what has reached it. */
  failOver(downMs: number): void {
    this.keys.replace(this.#replication?.takeOver() ?? new Map());
    for (const key of this.keys.names()) this.#watchExpiry(key, this.keys.kept(key)?.expiresAt);
    this.#replaced(downMs);
  }

  #replaced(downMs: number): void {
    this.term++;
    this.forgetScripts();
    this.#downUntil = Math.max(this.#downUntil, this.#loop.now + downMs);
  }

  /** Answers every script with an error, and executes none. */
  refuse(text: string, forMs: number): void {
    const refusal = { until: this.#loop.now + forMs, text };
    this.#refusal = refusal;
    this.#physics.after(forMs, () => {
      if (this.#refusal === refusal) this.#refusal = undefined;
    });
  }

  /** It has no memory to spare. */
  fill(state: Memory, forMs: number): void {
    this.#memory = { until: this.#loop.now + forMs, state };
  }

  /** It is moving its slots to another node, which has all that was there when half of the time is over. */
  move(forMs: number): void {
    if (!this.isMoving) this.#moved.clear();
    this.#movingUntil = Math.max(this.#movingUntil, this.#loop.now + forMs);
    this.#physics.after(forMs / 2, () => {
      for (const key of this.keys.names()) if (this.look(key)) this.#moved.add(key);
    });
  }

  setBack(ms: number): void {
    this.machine.setWallClock(-ms);
    this.setBackMs += ms;
    this.setBackAt = this.#loop.now;
    for (const key of this.keys.names()) this.#watchExpiry(key, this.look(key)?.expiresAt);
  }

  #watchExpiry(key: string, expiresAt: number | undefined): void {
    if (expiresAt === undefined) return;
    const leftMs = Math.max(0, this.goneAt(expiresAt) - this.#loop.now);
    this.#physics.after(leftMs + 0.001, () => this.look(key));
  }
}

/** On which of two servers a key is: by its last character, or that of its hash tag. */
function homeOf(key: string): number {
  const tag = /\{(.+?)\}/.exec(key)?.[1] ?? key;
  return tag.charCodeAt(tag.length - 1) % 2;
}
