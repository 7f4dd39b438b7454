import { execFile } from "node:child_process";
import { setTimeout as sleep } from "node:timers/promises";
import { promisify } from "node:util";
import { Child, sourceUrl } from "../../support/child.ts";
import { command } from "../../support/command.ts";
import { compiled } from "../../support/compiled.ts";
import { startProxy } from "../../support/proxy.ts";
import { startServer } from "../../support/server-process.ts";
import { labClients, Misses, runLaboratory, seedOf, setting } from "../laboratory.ts";
import { type Holding, Ledger, overlapping } from "../shop/ledger.ts";
import { now } from "../shop/protocol.ts";
import { Random } from "../simulation/time/random.ts";
import type { FromServer, Release, Settings, ToServer } from "./server.ts";

/*
 * "Moving to it" of docs/guide/choosing.md, played: two old servers, two new ones beside them, the way
 * back and forth again, and the end, with customers who click all the time. Time is scaled: an old
 * lock's two hours are 120 of our minutes, and a minute is `minuteMs`.
 */

/** A step of the recipe that is left out. */
const mistakes = ["plain DEL", "compare-and-delete of 1", "no keyOf", "too young"] as const;

interface MovingOptions {
  /** The Redis server. */
  readonly binary: string;
  readonly seed: number;
  readonly minuteMs: number;
  /** How many clicks there are at least while old and new servers are side by side. */
  readonly clicks: number;
  /** @defaultValue 40 */
  readonly customers?: number;
  readonly mistake?: (typeof mistakes)[number] | undefined;
}

interface Freed {
  readonly userId: string;
  readonly ageMs: number;
  readonly at: number;
}

const ioredis = ["ioredis 6", "ioredis 5"] as const;

class Server {
  readonly #child: Child<FromServer, ToServer>;
  readonly #answers = new Map<number, () => void>();
  #isLeaving = false;
  alarms = 0;

  constructor(program: string, settings: Settings, ledger: Ledger) {
    this.#child = new Child(program, [JSON.stringify(settings)]);
    const held = new Map<number, Holding>();
    let isDead = false;
    const holder = settings.release === undefined ? "new" : "old";
    this.#child.onMessage((message) => {
      if ("begun" in message) {
        const { begun, user, at: from } = message;
        const holding = ledger.begin({ holder, user, ownerId: `${begun}`, from });
        held.set(begun, holding);
        if (isDead) ledger.end(holding, from);
      } else if ("ended" in message) {
        const holding = held.get(message.ended);
        if (holding !== undefined) ledger.end(holding, message.at);
        held.delete(message.ended);
      } else if ("answered" in message) this.#answers.get(message.answered)?.();
      else if ("alarm" in message) this.alarms++;
    });
    // What a killed process has said last may be heard later.
    void this.#child.exit.then(() => {
      isDead = true;
      for (const holding of held.values()) ledger.end(holding, now());
      for (const answer of this.#answers.values()) answer();
    });
  }

  async isReady(): Promise<this> {
    await this.#child.next();
    return this;
  }

  get takesClicks(): boolean {
    return !this.#isLeaving && !this.#child.hasEnded;
  }

  async click(click: ToServer): Promise<void> {
    await new Promise<void>((resolve) => {
      this.#answers.set(click.click, resolve);
      this.#child.send(click, resolve);
    });
    this.#answers.delete(click.click);
  }

  async drain(): Promise<void> {
    this.#isLeaving = true;
    this.#child.signal("SIGTERM");
    await this.#child.exit;
  }

  async kill(): Promise<void> {
    await this.#child.kill();
  }
}

const execute = promisify(execFile);

async function playMoving(options: MovingOptions) {
  const { binary, clicks, customers: count = 40, minuteMs, mistake, seed } = options;
  const users = Array.from({ length: count }, (_, at) => (at % 2 ? `auth0|${at}` : `${at}`));
  const random = new Random(seed);
  const [program, cli] = await Promise.all(
    ["./server.ts", "../../../src/cli/index.ts"].map((file) =>
      compiled({ file: new URL(file, import.meta.url) }),
    ),
  );
  if (program === undefined || cli === undefined) throw new Error("nothing was compiled");
  const redis = await startServer(binary);
  const proxies = await Promise.all([startProxy(redis.port), startProxy(redis.port)]);
  const [lifeMs, olderMs] = [120 * minuteMs, (mistake === "too young" ? 2 : 10) * minuteMs];
  const ledger = new Ledger();
  const servers = { old: [] as Server[], new: [] as Server[] };
  const started: Server[] = [];
  const common = { lifeMs, hasKeyOf: mistake !== "no keyOf" };
  const start = async (kind: "old" | "new", at: number, release?: Release) => {
    const port = kind === "old" ? (proxies[at]?.port ?? 0) : redis.port;
    // What moves away from node-redis needs no first step.
    const redisClient = kind === "new" ? labClients()[at] : ioredis[at];
    const settings = { ...common, port, release, redisClient: redisClient ?? ioredis[0] };
    const server = new Server(program, settings, ledger);
    started.push(server);
    servers[kind][at] = await server.isReady();
  };
  const eachOf = (work: (at: number) => Promise<unknown>) => Promise.all([0, 1].map(work));
  const config = await compiled({
    code: `import { Redis } from "ioredis";
      import { RedisStore, SubmitLock } from ${JSON.stringify(sourceUrl("index.ts"))};
      export const redis = new Redis(${redis.port});
      const keyOf = ${common.hasKeyOf} ? (user) => "lock:" + user : undefined;
      export default new SubmitLock({ store: new RedisStore(redis), keyPrefix: "lock:", keyOf });`,
  });
  const submitLock = async (...args: string[]) =>
    await execute(process.execPath, [cli, ...args, "--config", config, "--json"]);

  let clicked = 0;
  let isOpen = true;
  const customer = async (user: string) => {
    while (isOpen) {
      const open = [...servers.old, ...servers.new].filter((each) => each?.takesClicks);
      const server = open[Math.floor(random.between(0, open.length))];
      const isOld = servers.old.some((old) => old === server);
      const slow = random.next() < 0.2 ? random.between(100, 300) : random.between(0, 20);
      // A slow order of an old server, and yet younger than what counts as stranded.
      const workMs = isOld && random.next() < 0.003 ? 5 * minuteMs : slow;
      await server?.click({ click: clicked++, user, workMs });
      await sleep(random.between(1, 40));
    }
  };

  const freed: Freed[] = [];
  let isSweeping = true;
  let longestSweepMs = 0;
  const sweep = async () => {
    for (let before = now(), due = before; isSweeping; due += minuteMs) {
      await sleep(Math.max(0, due - now()));
      const from = now();
      const old = ["--value", "1", "--life", `${lifeMs}ms`, "--older", `${olderMs}ms`];
      const { stderr } = await submitLock("free", "--stranded", ...old);
      for (const line of stderr.trim().split("\n").filter(Boolean)) {
        const { ageMs, key, time } = JSON.parse(line);
        const at = Date.parse(time) - Date.now() + now();
        freed.push({ userId: key.slice("lock:".length), ageMs, at });
      }
      // Of a key that the one before looked at first, and this one last.
      longestSweepMs = Math.max(longestSweepMs, now() - before);
      before = from;
    }
  };

  try {
    // A third of them are locked out when it begins.
    for (const user of users.slice(0, count / 3)) {
      const leftMs = Math.ceil(random.between(0.5, 0.9) * lifeMs);
      await command(redis.port, "set", `lock:${user}`, "1", "PX", leftMs);
    }
    // The old shop, alone.
    await eachOf((at) => start("old", at, "DEL"));
    const customers = users.flatMap((user) => [customer(user), customer(user)]);
    await sleep(3 * minuteMs);
    // Step 1: the old code, server by server.
    const isPlain = mistake === "plain DEL" ? "DEL" : "DEL, never sent again";
    const release = mistake === "compare-and-delete of 1" ? mistake : isPlain;
    const [first, second] = servers.old as [Server, Server];
    for (const [at, server] of [first, second].entries()) {
      await Promise.all([server.drain(), start("old", at, release)]);
    }
    // Steps 2 to 4: new servers beside it, and what the old code has stranded is freed.
    const from = { at: now(), clicked };
    const sweeping = sweep();
    await eachOf((at) => start("new", at));
    // At least two rounds of trouble, so that an old and a new server are killed.
    const isEnough = (trouble: number) => trouble >= 16 && clicked - from.clicked >= clicks;
    for (let trouble = 0; !isEnough(trouble); trouble++) {
      const at = trouble % 2;
      const [proxy, lost] = [proxies[at], trouble % 4 < 2 ? /^(del|eval)$/i : /^set$/i];
      await proxy?.loseReplyOnce(([name = ""]) => lost.test(name), { resetAfterMs: 80 });
      await sleep(random.between(50, 250));
      const [kind, release_] = trouble % 16 < 8 ? (["old", release] as const) : (["new"] as const);
      if (trouble % 8 < 7) continue;
      await servers[kind][at]?.kill();
      await start(kind, at, release_);
    }
    // The way back, and forth again.
    await eachOf(async (at) => servers.new[at]?.drain());
    await sleep(3 * minuteMs);
    await eachOf((at) => start("new", at));
    await sleep(3 * minuteMs);
    // The end: 1. no old server; 2. the sweep goes on for as long as an old lock counts as young.
    await eachOf(async (at) => servers.old[at]?.drain());
    const lastOldAt = now();
    await sleep(olderMs + 2 * minuteMs);
    // 3. Nothing of the old code is left; 4. the sweep ends; 5. the prefix stays.
    const listed = JSON.parse((await submitLock("list", "--state", "foreign")).stdout);
    isSweeping = false;
    await sweeping;
    const ordered = new Map(ledger.holdings.map(({ user, from }) => [user, from]));
    isOpen = false;
    await Promise.all(customers);
    const holdings = ledger.holdings.filter(({ until }) => until > from.at);
    const younger = freed.filter(({ ageMs, at }) => at - ageMs > from.at);
    const touched = freed.filter(({ userId, at }) =>
      holdings.some(
        ({ holder, user, from, until }) =>
          holder === "old" && user === userId && from < at - olderMs / 2 && until > at,
      ),
    );
    return {
      clicks: clicked - from.clicked,
      orders: holdings.length,
      overlaps: overlapping(holdings).length,
      /** Releases with the outcome `gone` or `foreign`. */
      alarms: started.reduce((sum, { alarms }) => sum + alarms, 0),
      freedOfBefore: freed.length - younger.length,
      freedOfNow: younger.length,
      longestStrandedMin: Math.max(...younger.map(({ ageMs }) => ageMs)) / minuteMs,
      sweepEachMin: longestSweepMs / minuteMs,
      touched: touched.length,
      leftAtEnd: listed.prefixes[0].count + listed.prefixes[0].otherKeys,
      cannotOrder: users.filter((user) => (ordered.get(user) ?? 0) < lastOldAt).length,
    };
  } finally {
    isOpen = isSweeping = false;
    await Promise.all(started.map((server) => server.kill()));
    await Promise.all(proxies.map((proxy) => proxy.stop()));
    await redis.stop();
  }
}

function misses(played: Awaited<ReturnType<typeof playMoving>>): string[] {
  const misses = new Misses();
  const { cannotOrder, freedOfBefore, freedOfNow, leftAtEnd, overlaps, touched } = played;
  misses.expect(overlaps === 0, `${overlaps} times two orders of a customer at once`);
  misses.expect(touched === 0, `${touched} locks of living orders were freed`);
  misses.expect(leftAtEnd === 0, `${leftAtEnd} old locks were left`);
  misses.expect(cannotOrder === 0, `${cannotOrder} customers could not order at the end`);
  misses.expect(freedOfBefore > 0 && freedOfNow > 0, "no customer was stranded");
  const bound = 10.5 + played.sweepEachMin;
  const late = `a customer was stranded for ${played.longestStrandedMin} minutes`;
  misses.expect(played.longestStrandedMin <= bound, late);
  return misses.found;
}

/**
 * `npm run lab -- moving`: the recipe with at least 100,000 clicks, then with each of its steps left
 * out. `MOVING`, `MOVING_SEED` and `MOVING_MINUTE_MS` say otherwise.
 */
export async function run(): Promise<void> {
  const clicks = setting("MOVING", 100_000);
  const seed = seedOf("MOVING_SEED");
  const minuteMs = setting("MOVING_MINUTE_MS", 1_000);
  await runLaboratory(`${clicks} clicks with MOVING_SEED=${seed}`, async (binary) => {
    const followed = await playMoving({ binary, seed, minuteMs, clicks });
    const rows: object[] = [{ "left out": "nothing", ...followed }];
    for (const mistake of mistakes) {
      const short = { clicks: clicks / 2, minuteMs: Math.min(minuteMs, 200) };
      const played = await playMoving({ binary, seed, mistake, ...short });
      rows.push({ "left out": mistake, ...played });
    }
    console.table(rows);
    return misses(followed);
  });
}
