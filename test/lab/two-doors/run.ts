import { randomUUID } from "node:crypto";
import { parseArgs } from "node:util";
import pg from "pg";
import { SubmissionTable } from "../../../src/sql/index.ts";
import { Child } from "../../support/child.ts";
import { compiled } from "../../support/compiled.ts";
import { serverBinary } from "../../support/server-binary.ts";
import { startServer } from "../../support/server-process.ts";
import { startPostgres } from "../../support/sql-servers.ts";
import {
  type FromDoor,
  type Step,
  steps,
  type ToDoor,
  tableOf,
  type Way,
  ways,
} from "./protocol.ts";

/*
 * A return page and two events of one payment come through `lock.once`, keyed by the payment. The
 * first call stops before each of its steps; the two others come at any of these moments; any process
 * is killed between any two steps. Then each door that was not answered is asked again.
 */

const doors = ["return", "event 1", "event 2"] as const;
/** When another call comes: with the first one, before one of its steps, or behind its answer. */
const moments = ["with it", ...steps, "after it"] as const;
type Moment = (typeof moments)[number];

interface Interleaving {
  readonly first: (typeof doors)[number];
  readonly others: readonly [Moment, Moment];
  /** Before which step the first process is killed, or a process that waits for it. */
  readonly killed: Step | "one that waits" | undefined;
}

function* interleavings(): Iterable<Interleaving> {
  for (const first of doors) {
    for (const one of moments) {
      for (const other of moments) {
        for (const killed of [undefined, ...steps, "one that waits"] as const) {
          yield { first, others: [one, other], killed };
        }
      }
    }
  }
}

const ttlMs = 2_000;

interface Place {
  /** Of {@link Door}'s processes. */
  readonly program: string;
  readonly redisPort: number;
  /** The address of a PostgreSQL. */
  readonly database: string;
  ordersOf(payment: string, way: Way): Promise<string[]>;
}

class Door {
  readonly #child: Child<FromDoor, ToDoor>;
  readonly #heard: FromDoor[] = [];
  #wake: () => void = () => {};

  private constructor(child: Child<FromDoor, ToDoor>) {
    this.#child = child;
    child.onMessage((message) => {
      this.#heard.push(message);
      this.#wake();
    });
    void child.exit.then(() => this.#wake());
  }

  static async open({ database, program, redisPort }: Place): Promise<Door> {
    const door = new Door(new Child(program, [`${redisPort}`, `${ttlMs}`, database]));
    await door.next();
    return door;
  }

  get isDead(): boolean {
    return this.#child.hasEnded;
  }

  /** What the process says next; "killed" if it was. */
  async next(): Promise<FromDoor | "killed"> {
    for (;;) {
      const heard = this.#heard.shift();
      if (heard !== undefined) return heard;
      if (this.isDead) return "killed";
      await new Promise<void>((resolve) => {
        this.#wake = resolve;
      });
    }
  }

  send(message: ToDoor): void {
    this.#child.send(message);
  }

  kill(): Promise<void> {
    return this.#child.kill();
  }
}

interface Outcome {
  readonly orders: number;
  /** A door that was shown another order than its own, or none at all. */
  readonly wrongs: readonly string[];
}

/** Three processes that play one interleaving after another. */
class Shop {
  readonly #place: Place;
  readonly #doors: (Door | undefined)[] = [];

  constructor(place: Place) {
    this.#place = place;
  }

  async play({ first, killed, others }: Interleaving, way: Way): Promise<Outcome> {
    const payment = randomUUID();
    const names = [first, ...doors.filter((door) => door !== first)];
    for (let i = 0; i < names.length; i++) {
      if (this.#doors[i]?.isDead !== false) {
        this.#doors[i] = await Door.open(this.#place);
      }
    }
    const opened = [...this.#doors] as Door[];
    const answers = new Map<Door, string>();
    const ask = (door: Door, goes: readonly Step[]) => door.send({ payment, way, goes });
    const hear = async (door: Door): Promise<void> => {
      for (let said = await door.next(); ; said = await door.next()) {
        if (said === "killed" || "failed" in said) return;
        if ("order" in said) return void answers.set(door, said.order);
        door.send({ goOn: true });
      }
    };
    const [holder, ...rivals] = opened as [Door, Door, Door];
    const heard: Promise<void>[] = [];
    const waiting: Door[] = [];
    const come = (moment: Moment) => {
      for (const [i, rival] of rivals.entries()) {
        if (others[i] !== moment) continue;
        ask(rival, steps);
        waiting.push(rival);
        heard.push(hear(rival));
      }
    };
    ask(holder, []);
    // Whichever of these comes first has the lock; the rest of this order of steps is its own.
    come("with it");
    for (;;) {
      const said = await holder.next();
      if (said === "killed" || "failed" in said) break;
      if ("order" in said) {
        answers.set(holder, said.order);
        break;
      }
      come(said.at);
      if (killed === said.at) await holder.kill();
      else {
        if (killed === "one that waits") await waiting[0]?.kill();
        holder.send({ goOn: true });
      }
    }
    come("after it");
    await Promise.all(heard);
    // The provider sends its events again, and the customer reloads the page.
    for (const [i, door] of opened.entries()) {
      for (let tries = 0; !answers.has(door) && tries < 20; tries++) {
        const again = door.isDead ? await Door.open(this.#place) : door;
        this.#doors[i] = again;
        ask(again, steps);
        const said = await again.next();
        if (said !== "killed" && "order" in said) answers.set(door, said.order);
        else await new Promise((resolve) => setTimeout(resolve, 100));
      }
    }
    const placed = await this.#place.ordersOf(payment, way);
    const wrongs = opened.flatMap((door, i) => {
      const order = answers.get(door);
      if (order === undefined) return [`${names[i]} got no answer`];
      return placed.includes(order) ? [] : [`${names[i]} was shown an order that is none`];
    });
    if (placed.length === 1 && new Set(answers.values()).size !== 1) wrongs.push("two answers");
    return { orders: placed.length, wrongs };
  }

  async close(): Promise<void> {
    await Promise.all(this.#doors.map((door) => door?.kill()));
  }
}

/** Whether the process dies between the order's commit and its record. */
const isInGap = ({ killed }: Interleaving) => killed === "return" || killed === "record";

export interface Played {
  readonly way: Way;
  readonly interleavings: number;
  /** How many had more than one order, by the step before which the process was killed. */
  readonly doubles: Readonly<Record<string, number>>;
  /** What was not one order that each door was shown. Without a key, the gap may have two. */
  readonly misses: readonly string[];
}

interface Row {
  readonly number: string;
}

/** Every so many of the interleavings, in each way; `undefined` where there is no PostgreSQL. */
export async function playAll(every: number, shops = 6): Promise<Played[] | undefined> {
  const postgres = await startPostgres();
  if (postgres === undefined) return undefined;
  const redis = await startServer(serverBinary());
  const db = new pg.Pool({ connectionString: postgres.url, max: shops });
  await db.query(`CREATE TABLE orders (payment text, number text);
    CREATE TABLE keyed_orders (payment text UNIQUE, number text); ${new SubmissionTable().ddl}`);
  const program = await compiled({
    file: new URL("./door.ts", import.meta.url),
    withPackages: true,
  });
  const place: Place = {
    program,
    redisPort: redis.port,
    database: postgres.url,
    async ordersOf(payment, way) {
      const orders = `SELECT number FROM ${tableOf(way)} WHERE payment = $1`;
      return (await db.query(orders, [payment])).rows.map(({ number }: Row) => number);
    },
  };
  const opened = Array.from({ length: shops }, () => new Shop(place));
  try {
    const all: Played[] = [];
    for (const way of ways) {
      const chosen = [...interleavings()].filter((_, at) => at % every === 0);
      const doubles: Record<string, number> = {};
      const misses: string[] = [];
      const waiting = [...chosen];
      const plays = opened.map(async (shop) => {
        for (let each = waiting.pop(); each !== undefined; each = waiting.pop()) {
          const { orders, wrongs } = await shop.play(each, way);
          const mayDouble = way === "nothing else" && isInGap(each);
          if (orders > 1) doubles[`${each.killed}`] = (doubles[`${each.killed}`] ?? 0) + 1;
          if (wrongs.length === 0 && (orders === 1 || (orders > 1 && mayDouble))) continue;
          misses.push(`${way}, ${JSON.stringify(each)}: ${orders} orders, ${wrongs.join(", ")}`);
        }
      });
      await Promise.all(plays);
      all.push({ way, interleavings: chosen.length, doubles, misses });
    }
    return all;
  } finally {
    await Promise.all(opened.map((shop) => shop.close()));
    await db.end();
    await Promise.all([redis.stop(), postgres.stop()]);
  }
}

/** `npm run lab -- two-doors`, with `--shops`. */
export async function run(): Promise<void> {
  const { values } = parseArgs({ options: { shops: { type: "string" } } });
  for (const { doubles, interleavings, misses, way } of (await playAll(
    1,
    Number(values.shops ?? 6),
  )) ?? []) {
    const count = Object.values(doubles).reduce((sum, each) => sum + each, 0);
    console.log(
      `lock.once and ${way}: ${interleavings} interleavings, ${count} with more than one order`,
    );
    for (const [step, each] of Object.entries(doubles))
      console.log(`  ${each} killed before ${step}`);
    for (const miss of misses) console.log(`MISSED: ${miss}`);
    if (misses.length > 0) process.exitCode = 1;
  }
}
