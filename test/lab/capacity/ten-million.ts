import { mkdtempSync, readdirSync, rmSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { setTimeout as sleep } from "node:timers/promises";
import { Child } from "../../support/child.ts";
import { compiled } from "../../support/compiled.ts";
import { until } from "../../support/until.ts";
import { Misses } from "../laboratory.ts";
import { Progress } from "../progress.ts";
import { now } from "../shop/protocol.ts";
import { Random } from "../simulation/time/random.ts";
import { type Durable, startDurable } from "./durable.ts";
import { checked } from "./ledger.ts";
import { type Pipe, startPipe } from "./pipe.ts";
import type { Counts, FromShop, Settings, ToShop } from "./shop-process.ts";

export interface Play extends Pick<Settings, "by" | "seed" | "retainMs"> {
  readonly orders: number;
  readonly faultEveryMs: number;
  readonly mostFaults: number;
  /** No order is given out after this time. */
  readonly mostMs: number;
  /** No more orders are given out in a second. */
  readonly mostPerSecond: number;
}

interface Shop {
  readonly index: number;
  readonly redisPort: number;
  readonly child: Child<FromShop, ToShop>;
  /** What it has to place: the first orders, and before which to stop. */
  readonly chunks: Map<number, number>;
}

const chunk = 500;

/** The processes of a play. */
class Shops {
  readonly killed = new Set<number>();
  readonly counts: Counts = {};
  given = 0;
  placed = 0;
  readonly #play: Play;
  readonly #open: (index: number, redisPort: number) => Child<FromShop, ToShop>;
  readonly #shops = new Set<Shop>();
  readonly #again: [from: number, to: number][] = [];
  readonly #random: Random;
  #next = 0;

  constructor(play: Play, open: (index: number, redisPort: number) => Child<FromShop, ToShop>) {
    this.#play = play;
    this.#open = open;
    this.#random = new Random(play.seed);
  }

  async open(redisPort: number): Promise<void> {
    const index = this.#next++;
    const child = this.#open(index, redisPort);
    const shop: Shop = { index, redisPort, child, chunks: new Map() };
    shop.child.onMessage((message) => this.#heard(shop, message));
    await shop.child.next();
    this.#shops.add(shop);
  }

  #heard({ chunks }: Shop, message: FromShop): void {
    if ("clickElsewhere" in message) {
      this.#random.pick([...this.#shops]).child.send({ click: message.clickElsewhere });
    } else if ("placed" in message) {
      chunks.delete(message.from);
      this.placed += message.placed;
    }
    const counts = "counts" in message ? message.counts : "ended" in message ? message.ended : {};
    for (const [name, count] of Object.entries(counts)) {
      this.counts[name] = (this.counts[name] ?? 0) + count;
    }
  }

  /** What it was asked for, its customers ask of another one, the answered ones too. */
  async kill(): Promise<void> {
    const shop = this.#random.pick([...this.#shops]);
    this.killed.add(shop.index);
    this.#shops.delete(shop);
    await shop.child.kill();
    this.#again.push(...shop.chunks);
    await this.open(shop.redisPort);
  }

  /** Gives orders out until all are placed, or the time is over and those are that were given out. */
  async goOn(): Promise<void> {
    const { mostMs, mostPerSecond, orders } = this.#play;
    const from = now();
    for (let [last, at] = [0, from]; ; await sleep(5)) {
      const ms = now() - from;
      const isOver = this.given === orders || ms >= mostMs;
      for (const { child, chunks } of this.#shops) {
        if (chunks.size >= 2) continue;
        const next = this.#again.pop() ?? this.#nextChunk(isOver, (ms * mostPerSecond) / 1_000);
        if (next === undefined) continue;
        chunks.set(...next);
        child.send({ from: next[0], to: next[1] });
      }
      if (this.placed > last) [last, at] = [this.placed, now()];
      if (now() - at > 120_000) throw new Error(`${last} orders, and none in the last 2 minutes`);
      const isIdle =
        this.#again.length === 0 && [...this.#shops].every(({ chunks }) => !chunks.size);
      if (isOver && isIdle && this.placed >= this.given) return;
    }
  }

  #nextChunk(isOver: boolean, most: number): [from: number, to: number] | undefined {
    if (isOver || this.given >= most) return undefined;
    const from = this.given;
    this.given = Math.min(from + chunk, this.#play.orders);
    return [from, this.given];
  }

  /** Resolves when each customer has been answered, those who click again included. */
  async end(): Promise<void> {
    for (const { child } of this.#shops) {
      const ended = child.next(120_000, (message) => "ended" in message);
      child.send({ ends: true });
      await ended;
    }
  }

  async stop(): Promise<void> {
    await Promise.all([...this.#shops].map(({ child }) => child.kill()));
  }
}

/** Trouble of one kind after another. */
class Troubles {
  readonly played: Counts = {};
  /** When Redis was killed. */
  readonly restarts: number[] = [];

  async goOn(play: Play, { server }: Durable, pipe: Pipe, shops: Shops, isOver: () => boolean) {
    const random = new Random(play.seed + 1);
    const kinds: Record<string, () => unknown> = {
      restart: async () => {
        this.restarts.push(now());
        await server.kill();
        await sleep(random.between(200, 1_500));
        await server.restart();
      },
      silence: async () => {
        server.pause();
        await sleep(random.between(1_000, 4_000));
        server.resume();
      },
      "lost replies": () => pipe.loseReplies(),
      "killed process": () => shops.kill(),
    };
    for (const name of Object.keys(kinds)) this.played[name] = 0;
    let next = now() + play.faultEveryMs / 2;
    for (let round = 0; !isOver(); await sleep(10)) {
      if (now() < next || round === play.mostFaults) continue;
      const [name, trouble] = Object.entries(kinds)[round++ % 4] as [string, () => unknown];
      await trouble();
      this.played[name] = (this.played[name] ?? 0) + 1;
      // One after another: what was answered in an outage is recorded before its process is killed.
      next = Math.max(next + play.faultEveryMs, now() + 3_000);
    }
  }
}

/** Plays the orders and checks the ledger. @returns what was to be seen and was not. */
export async function playOrders(play: Play): Promise<readonly string[]> {
  const { by, retainMs, seed } = play;
  const folder = mkdtempSync(join(tmpdir(), "submit-lock-ledger-"));
  const program = await compiled({ file: new URL("./shop-process.ts", import.meta.url) });
  const durable = await startDurable();
  const pipe = await startPipe(durable.server.port);
  const shops = new Shops(play, (index, redisPort) => {
    const ledger = join(folder, `${index}`);
    const settings: Settings = { by, index, redisPort, ledger, seed, retainMs };
    return new Child<FromShop, ToShop>(program, [JSON.stringify(settings)]);
  });
  const troubles = new Troubles();
  const progress = new Progress(play.orders, `orders by ${by}`);
  const most = { megabytes: 0, records: 0 };
  const looks = setInterval(async () => {
    progress.at(0)(shops.placed);
    const { used_memory: bytes = 0 } = await durable.info();
    most.megabytes = Math.max(most.megabytes, bytes / 1e6);
    most.records = Math.max(most.records, await durable.redis.dbsize().catch(() => 0));
  }, 1_000);
  const misses = new Misses();
  try {
    const { port } = durable.server;
    for (const redisPort of [port, pipe.port, port]) await shops.open(redisPort);
    const from = now();
    let isOver = false;
    const going = shops.goOn().finally(() => {
      isOver = true;
    });
    await Promise.all([troubles.goOn(play, durable, pipe, shops, () => isOver), going]);
    const seconds = (now() - from) / 1_000;
    await shops.end();
    const endedAt = now();
    const become = async (what: string, boundMs: number, left: () => Promise<number>) => {
      const isSo = until(async () => (await left()) === 0, { what, boundMs, everyMs: 100 });
      misses.expect(await isSo.catch(() => false), `not within ${boundMs} ms: ${what}`);
    };
    await become("every user is free", 15_000, async () => {
      let locks = 0;
      for await (const keys of durable.redis.scanStream({ match: "lock:*", count: 10_000 })) {
        locks += keys.length;
      }
      return locks;
    });
    await become("every record has run out", retainMs + 15_000, () => durable.redis.dbsize());
    const emptyAfterMs = now() - endedAt;
    const files = readdirSync(folder).map((name) => join(folder, name));
    const { restarts } = troubles;
    const faults = { killed: shops.killed, restarts, retainMs };
    const { examples, ...ledger } = checked(files, shops.given, faults);
    const rate = Math.round(shops.given / seconds);
    console.log(`by ${by}: ${JSON.stringify({ ...ledger, seconds, rate, most, emptyAfterMs })}`);
    console.log(`by ${by}: ${JSON.stringify({ faults: troubles.played, seen: shops.counts })}`);
    for (const example of examples.slice(0, 20)) console.log(`ran twice: ${example}`);
    for (const name of ["neverRan", "neverShown", "shownAnother", "ranAgain"] as const) {
      misses.expect(ledger[name] === 0, `${name}: ${ledger[name]}`);
    }
    for (const [name, count] of Object.entries(troubles.played)) {
      misses.expect(count > 0, `no fault of the kind: ${name}`);
    }
    return misses.found;
  } finally {
    clearInterval(looks);
    progress.stop();
    await shops.stop();
    pipe.stop();
    await durable.stop();
    rmSync(folder, { recursive: true, force: true });
  }
}
