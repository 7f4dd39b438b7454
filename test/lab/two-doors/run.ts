import { randomUUID } from "node:crypto";
import { parseArgs } from "node:util";
import { Redis } from "ioredis";
import { Child } from "../../support/child.ts";
import { compiled } from "../../support/compiled.ts";
import { serverBinary } from "../../support/server-binary.ts";
import { startServer } from "../../support/server-process.ts";
import { type FromDoor, type Step, steps, type ToDoor } from "./protocol.ts";

/*
 * A return page and two events of one payment come through `lock.once`, keyed by the payment. The
 * first call stops before each of its steps; the two others come at any of these moments; any process
 * is killed between any two steps. Then each door that was not answered is asked again.
 */

const doors = ["return", "event 1", "event 2"] as const;
/** When another call comes: with the first one, before one of its steps, or behind its answer. */
const moments = ["with it", ...steps, "after it"] as const;
type Moment = (typeof moments)[number];

export interface Interleaving {
  readonly first: (typeof doors)[number];
  readonly others: readonly [Moment, Moment];
  /** Before which step the first process is killed, or a process that waits for it. */
  readonly killed: Step | "one that waits" | undefined;
}

export function* interleavings(): Iterable<Interleaving> {
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

  static async open(program: string, redisPort: number): Promise<Door> {
    const door = new Door(new Child(program, [`${redisPort}`, `${ttlMs}`]));
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

export interface Outcome {
  readonly orders: number;
  /** A door that was shown another order than its own, or none at all. */
  readonly wrongs: readonly string[];
}

/** Three processes that play one interleaving after another. */
export class Shop {
  readonly #program: string;
  readonly #redis: Redis;
  readonly #redisPort: number;
  readonly #doors: (Door | undefined)[] = [];

  constructor(program: string, redisPort: number) {
    this.#program = program;
    this.#redisPort = redisPort;
    this.#redis = new Redis(redisPort, "127.0.0.1");
  }

  async play({ first, killed, others }: Interleaving, isUnique: boolean): Promise<Outcome> {
    const payment = randomUUID();
    const names = [first, ...doors.filter((door) => door !== first)];
    for (let i = 0; i < names.length; i++) {
      if (this.#doors[i]?.isDead !== false) {
        this.#doors[i] = await Door.open(this.#program, this.#redisPort);
      }
    }
    const opened = [...this.#doors] as Door[];
    const answers = new Map<Door, string>();
    const ask = (door: Door, goes: readonly Step[]) => door.send({ payment, isUnique, goes });
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
        const again = door.isDead ? await Door.open(this.#program, this.#redisPort) : door;
        this.#doors[i] = again;
        ask(again, steps);
        const said = await again.next();
        if (said !== "killed" && "order" in said) answers.set(door, said.order);
        else await new Promise((resolve) => setTimeout(resolve, 100));
      }
    }
    const placed = await this.#redis.lrange(`orders:${payment}`, 0, -1);
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
    this.#redis.disconnect();
  }
}

/** Whether the process dies between the order's commit and its record. */
const isInGap = ({ killed }: Interleaving) => killed === "return" || killed === "record";

/** `npm run lab -- two-doors`, with `--shops`. */
export async function run(): Promise<void> {
  const { values } = parseArgs({ options: { shops: { type: "string" } } });
  const server = await startServer(await serverBinary());
  const program = await compiled({ file: new URL("./door.ts", import.meta.url) });
  const shops = Array.from(
    { length: Number(values.shops ?? 6) },
    () => new Shop(program, server.port),
  );
  const needsKey = new Map<string, number>();
  let failed = 0;
  for (const isUnique of [false, true]) {
    const all = [...interleavings()];
    let played = 0;
    let doubled = 0;
    const plays = shops.map(async (shop) => {
      for (let each = all.pop(); each !== undefined; each = all.pop()) {
        const { orders, wrongs } = await shop.play(each, isUnique);
        played++;
        if (orders > 1) doubled++;
        const mayDouble = !isUnique && isInGap(each);
        if (orders > 1 && mayDouble) {
          const gap = `killed before its ${each.killed}`;
          needsKey.set(gap, (needsKey.get(gap) ?? 0) + 1);
        }
        if (wrongs.length === 0 && (orders === 1 || (orders > 1 && mayDouble))) continue;
        failed++;
        console.log(`${JSON.stringify(each)}: ${orders} orders, ${wrongs.join(", ")}`);
      }
    });
    await Promise.all(plays);
    const table = isUnique ? "with a unique key" : "with `lock.once` alone";
    console.log(`${table}: ${played} interleavings, ${doubled} with more than one order`);
  }
  for (const [gap, count] of needsKey) console.log(`  needs the unique key: ${gap} (${count})`);
  console.log(failed === 0 ? "Every door got its order." : `${failed} interleavings were wrong.`);
  await Promise.all(shops.map((shop) => shop.close()));
  await server.stop();
  if (failed > 0) process.exitCode = 1;
}
