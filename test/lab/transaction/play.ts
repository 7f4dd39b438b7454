import { randomUUID } from "node:crypto";
import { createServer, type Server } from "node:http";
import { setTimeout as sleep } from "node:timers/promises";
import { listen, openClient, type Reply } from "../../http/http-client.ts";
import { Child } from "../../support/child.ts";
import { command } from "../../support/command.ts";
import { compiled } from "../../support/compiled.ts";
import { type RedisServer, startServer } from "../../support/server-process.ts";
import type { SqlServer } from "../../support/sql-servers.ts";
import { onPostgres, openDatabase, type ShopDatabase } from "./database.ts";
import {
  type Blow,
  type DatabaseName,
  type Schedule,
  type Settings,
  type Subject,
  scheduleOf,
  subjects,
} from "./schedule.ts";
import type { FromShop } from "./shop-process.ts";
import { ordersOf, statementsFor } from "./tables.ts";

export interface PlayOptions {
  readonly redisBinary: string;
  readonly database: DatabaseName;
  readonly server: SqlServer;
  /** How many schedules each subject goes through; all go through the same ones. */
  readonly schedules: Readonly<Partial<Record<Subject, number>>>;
  readonly seed: number;
  /** How many customers are at it at once, each with a Redis and processes of their own. */
  readonly lanes: number;
}

const flaws = [
  "double order",
  "double stock",
  "double outbox",
  "double charge",
  "lost order",
  "two numbers",
  "no 2xx",
] as const;
type Flaw = (typeof flaws)[number];

/** What a subject has done with all its schedules. */
type Tally = Record<Flaw | "schedules" | "wrong" | "struck", number>;

export interface Played {
  readonly tallies: ReadonlyMap<Subject, Tally>;
  /** The seeds with which `submissions.once` was wrong, and how. */
  readonly misses: readonly string[];
}

export async function play(options: PlayOptions): Promise<Played> {
  const provider = new Provider();
  await provider.listen();
  const books = await Books.open(options.database, options.server.url);
  const tallies = new Map<Subject, Tally>();
  const misses: string[] = [];
  const jobs = subjects.flatMap((subject) =>
    Array.from({ length: options.schedules[subject] ?? 0 }, (_, at) => ({ subject, at })),
  );
  // By schedule and not by subject, so that all subjects meet the same neighbours.
  jobs.sort((one, other) => one.at - other.at);
  const lanes = await Promise.all(
    Array.from({ length: options.lanes }, () =>
      Lane.open(options.redisBinary, {
        database: options.database,
        url: options.server.url,
        providerPort: provider.port,
      }),
    ),
  );
  try {
    await Promise.all(
      lanes.map(async (lane) => {
        for (let job = jobs.shift(); job !== undefined; job = jobs.shift()) {
          const schedule = scheduleOf(options.seed + job.at);
          const tally = tallies.get(job.subject) ?? emptyTally();
          tallies.set(job.subject, tally);
          const { found, struck } = await lane.play(schedule, job.subject, books, provider);
          tally.schedules++;
          if (struck) tally.struck++;
          if (found.length > 0) tally.wrong++;
          for (const flaw of found) tally[flaw]++;
          if (job.subject === "submissions.once" && found.length > 0) {
            misses.push(`${options.database}: ${found}: ${JSON.stringify(schedule)}`);
          }
        }
      }),
    );
  } finally {
    await Promise.all(lanes.map((lane) => lane.close()));
    await books.close();
    provider.close();
  }
  return { tallies, misses };
}

function emptyTally(): Tally {
  const names = ["schedules", "struck", "wrong", ...flaws];
  return Object.fromEntries(names.map((name) => [name, 0])) as Tally;
}

/** The payment provider: a key is charged once, and every charge is counted. */
class Provider {
  port = 0;
  readonly #charged = new Set<string>();
  readonly #charges = new Map<string, number>();
  readonly #server: Server = createServer((req, res) => {
    const buyer = String(req.headers["x-buyer"]);
    const key = `${buyer} ${req.headers["idempotency-key"]}`;
    if (!this.#charged.has(key)) this.#charges.set(buyer, this.chargesOf(buyer) + 1);
    this.#charged.add(key);
    res.end("{}");
  });

  async listen(): Promise<void> {
    this.port = await listen(this.#server);
  }

  chargesOf(buyer: string): number {
    return this.#charges.get(buyer) ?? 0;
  }

  close(): void {
    this.#server.closeAllConnections();
    this.#server.close();
  }
}

/** What is in the database in the end. */
class Books {
  readonly #database: DatabaseName;
  readonly #db: ShopDatabase;

  static async open(database: DatabaseName, url: string): Promise<Books> {
    const db = await openDatabase({ database, url, redisPort: 0, providerPort: 0 });
    const books = new Books(database, db);
    for (const statement of statementsFor(database)) await books.#row(statement);
    return books;
  }

  constructor(database: DatabaseName, db: ShopDatabase) {
    this.#database = database;
    this.#db = db;
  }

  async begin(buyer: string): Promise<void> {
    await this.#row(`INSERT INTO stock VALUES ('${buyer}', 0)`);
  }

  async of(subject: Subject, buyer: string) {
    const count = async (from: string) => Number((await this.#row(from))?.["n"]);
    const of = `WHERE buyer = '${buyer}'`;
    return {
      orders: await count(`SELECT count(*) AS n FROM ${ordersOf(subject)} ${of}`),
      stock: await count(`SELECT changed AS n FROM stock ${of}`),
      placed: await count(`SELECT count(*) AS n FROM outbox ${of} AND topic = 'placed'`),
      paid: await count(`SELECT count(*) AS n FROM outbox ${of} AND topic = 'paid'`),
    };
  }

  async #row(text: string): Promise<Record<string, unknown> | undefined> {
    const none = async () => {};
    const sent = this.#database === "PostgreSQL" ? onPostgres(text) : text;
    return await this.#db.transaction("READ COMMITTED", none, (tx) => tx.row(sent, []));
  }

  close(): Promise<void> {
    return this.#db.close();
  }
}

/**
 * How long one answer is waited for, and how long a customer goes on trying: on a busy machine a
 * process that was killed may take half a minute to come back.
 */
const patience = { answerMs: 10_000, customerMs: 120_000, betweenMs: 120 };

/** Longer than a lease lasts. */
const stoppedMs = 1_500;

class Shop {
  readonly child: Child<FromShop>;
  readonly ready: Promise<number>;
  struck: Blow | undefined;

  constructor(program: string, settings: Settings) {
    this.child = new Child<FromShop>(program, [JSON.stringify(settings)]);
    this.child.onMessage((message) => {
      if (!("struck" in message)) return;
      this.struck = message.struck;
      if (message.struck === "stop") setTimeout(() => this.child.signal("SIGCONT"), stoppedMs);
    });
    this.ready = this.child.next().then((message) => ("port" in message ? message.port : 0));
    this.ready.catch(() => {});
  }
}

class Lane {
  readonly #program: string;
  readonly #settings: Settings;
  readonly #redis: RedisServer;
  readonly #shops: Shop[];
  #isClosed = false;

  static async open(redisBinary: string, settings: Omit<Settings, "redisPort">): Promise<Lane> {
    const program = await compiled({
      file: new URL("./shop-process.ts", import.meta.url),
      withPackages: true,
    });
    const redis = await startServer(redisBinary);
    return new Lane(program, { ...settings, redisPort: redis.port }, redis);
  }

  constructor(program: string, settings: Settings, redis: RedisServer) {
    this.#program = program;
    this.#settings = settings;
    this.#redis = redis;
    this.#shops = [0, 1].map((at) => this.#start(at));
  }

  #start(at: number): Shop {
    const shop = new Shop(this.#program, this.#settings);
    // Whoever watches the processes of a shop starts another one.
    void shop.child.exit.then(() => {
      if (!this.#isClosed) this.#shops[at] = this.#start(at);
    });
    return shop;
  }

  async play(
    schedule: Schedule,
    subject: Subject,
    books: Books,
    provider: Provider,
  ): Promise<{ found: Flaw[]; struck: boolean }> {
    const buyer = `buyer-${randomUUID()}`;
    await books.begin(buyer);
    await Promise.all(this.#shops.map(({ ready }) => ready));
    for (const shop of this.#shops) shop.struck = undefined;
    const shops = [...this.#shops];
    const numbers = new Set<number>();
    const statuses: number[] = [];
    const headers = {
      "x-user": buyer,
      "x-subject": subject,
      "x-isolation": schedule.isolation,
      "idempotency-key": randomUUID(),
      "content-type": "application/json",
    };
    const click = async (nth: number) => {
      const { blow } = schedule;
      const more = blow?.click === nth ? { "x-blow": `${blow.kind}@${blow.point}` } : {};
      const end = performance.now() + patience.customerMs;
      for (let tries = 0; ; tries++) {
        const at = (nth + tries) % schedule.processes;
        const reply = await this.#ask(at, tries === 0 ? { ...headers, ...more } : headers);
        const { code, number } = reply === undefined ? {} : JSON.parse(reply.body);
        const isFinal = reply?.status === 201 || code === "already_placed";
        if (reply?.status === 201) numbers.add(number);
        if (isFinal || performance.now() > end) return void statuses.push(reply?.status ?? 0);
        await sleep(patience.betweenMs);
      }
    };
    const ended = this.#disturb(schedule);
    const clicks: Promise<void>[] = [];
    for (let nth = 0; nth < schedule.clicks; nth++) {
      clicks.push(click(nth));
      if (schedule.betweenMs > 0) await sleep(schedule.betweenMs);
    }
    await Promise.all(clicks);
    // A late click: the page is reloaded.
    await click(schedule.clicks);
    await ended;
    const { orders, stock, placed, paid } = await books.of(subject, buyer);
    const found: Flaw[] = [];
    const note = (isSo: boolean, flaw: Flaw) => void (isSo && found.push(flaw));
    note(orders > 1, "double order");
    note(stock < -1, "double stock");
    note(placed > 1 || paid > 1, "double outbox");
    note(provider.chargesOf(buyer) > 1, "double charge");
    const isPlaced = numbers.size > 0;
    note(isPlaced && (orders < 1 || stock > -1 || placed < 1 || paid < 1), "lost order");
    note(numbers.size > 1, "two numbers");
    note(!isPlaced || statuses.some((status) => status !== 201), "no 2xx");
    const struck = shops.some((shop) => shop.struck !== undefined);
    return { found, struck };
  }

  async #ask(at: number, headers: Record<string, string>): Promise<Reply | undefined> {
    const port = await this.#shops[at]?.ready.catch(() => undefined);
    if (port === undefined) return undefined;
    const client = openClient(1, port);
    const call = client.call({ headers, body: '{"cups":1}' });
    const late = setTimeout(() => call.abort(), patience.answerMs);
    const reply = await call.reply.catch(() => undefined);
    clearTimeout(late);
    client.close();
    return reply;
  }

  /** What becomes of Redis meanwhile. Resolves when it is as it was. */
  async #disturb({ redis }: Schedule): Promise<void> {
    const server = this.#redis;
    if (redis === "away" || redis === "away in the middle") {
      if (redis === "away in the middle") await sleep(15);
      await server.kill();
      await sleep(700);
      await server.restart();
    }
    if (redis === "paused") {
      server.pause();
      await sleep(700);
      server.resume();
    }
    if (redis === "emptied") {
      for (const afterMs of [10, 60, 300]) {
        await sleep(afterMs);
        await command(server.port, "FLUSHALL");
      }
    }
    if (redis === "restarted empty") {
      await sleep(25);
      await server.restart();
    }
  }

  async close(): Promise<void> {
    this.#isClosed = true;
    for (const { child } of this.#shops) child.signal("SIGCONT");
    await Promise.all(this.#shops.map(({ child }) => child.kill()));
    await this.#redis.stop();
  }
}
