import { setTimeout as sleep } from "node:timers/promises";
import { ioredis6, untilReady } from "../../support/clients.ts";
import { now } from "../service/protocol.ts";

/** What a server of the shop is told when it starts. */
export interface ServerSettings {
  /** One of `shopLocks`. */
  readonly lock: string;
  readonly redisPort: number;
  /** How far its clock is ahead of the others'. */
  readonly clockAheadMs: number;
}

/** One click. */
export interface Submit {
  readonly number: number;
  readonly user: string;
  readonly wish: string;
  readonly workMs: number;
}

/** Times are those of the clock that all processes of a machine share, in milliseconds. */
export type Answer = Placed | { readonly kind: "repeated" | "refused" | "died" };

/** The order was worked on, under the lock, from here to there. */
export interface Placed {
  readonly kind: "placed";
  readonly fromMs: number;
  readonly untilMs: number;
}

export type FromServer =
  | { readonly ready: true }
  | { readonly number: number; readonly answer: Answer };

/** One server of the shop, in a process of its own: `server-process.ts SETTINGS`. */
const settings = JSON.parse(process.argv[2] ?? "{}") as ServerSettings;

// Before anything reads it, and for everything that runs here, as a wrongly set clock would be.
const { now: rightTime } = Date;
Date.now = () => rightTime() + settings.clockAheadMs;

const { openShopLock } = await import("./shop-lock.ts");
const client = ioredis6.connect(settings.redisPort, { commandTimeout: 200 });
await untilReady(client);
const lock = await openShopLock(settings.lock, client);

const tell = (message: FromServer) => void process.send?.(message);
// A lock that rejects where nobody listens is not to end the shop.
process.on("unhandledRejection", () => {});
process.once("disconnect", () => process.exit());
process.on("message", (submit: Submit) => {
  void placed(submit).then((answer) => tell({ number: submit.number, answer }));
});
tell({ ready: true });

async function placed({ user, wish, workMs }: Submit): Promise<Answer> {
  // As applications do: a lock that could not be asked for is a refusal.
  const submitted = await lock.submit(user, wish).catch(() => "refused" as const);
  if (submitted === "repeated" || submitted === "refused") return { kind: submitted };
  const fromMs = now();
  try {
    await sleep(workMs, undefined, { signal: submitted.signal });
  } catch {
    return { kind: "refused" };
  }
  const untilMs = now();
  submitted.finish().catch(() => {});
  return { kind: "placed", fromMs, untilMs };
}
