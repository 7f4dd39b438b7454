import { Redis } from "ioredis";
import { RedisStore, SubmitLock } from "../../../src/index.ts";
import type { CompleteRequest } from "../../../src/lock/store.ts";
import type { DoorCall, FromDoor, Step, ToDoor } from "./protocol.ts";

let goOn: () => void = () => {};
let call: DoorCall | undefined;

async function stop(at: Step): Promise<void> {
  if (call?.goes.includes(at)) return;
  const told = new Promise<void>((resolve) => {
    goOn = resolve;
  });
  process.send?.({ at } satisfies FromDoor);
  await told;
}

/** The record is written when the parent says so, and so a process can be killed before. */
class StoppingStore extends RedisStore {
  override complete(request: CompleteRequest): void {
    void stop("record").then(() => super.complete(request));
  }
}

const redis = new Redis(Number(process.argv[2]), "127.0.0.1");
const times = { ttlMs: Number(process.argv[3]), acquireTimeoutMs: 1_000, commandTimeoutMs: 500 };
const lock = new SubmitLock({ store: new StoppingStore(redis), ...times });

/** The door's work: the only function that writes an order. */
async function placeOrder({ isUnique, payment }: DoorCall): Promise<string> {
  const order = `order-of-${process.pid}-${Math.random()}`;
  await stop("commit");
  if (!isUnique) {
    await redis.rpush(`orders:${payment}`, order);
    return order;
  }
  // INSERT … ON CONFLICT: a second run finds the order of the first.
  const placed = await redis.hsetnx(`unique:${payment}`, "order", order);
  if (placed === 1) await redis.rpush(`orders:${payment}`, order);
  return (await redis.hget(`unique:${payment}`, "order")) ?? order;
}

async function answer(asked: DoorCall): Promise<FromDoor> {
  call = asked;
  const submission = { id: asked.payment };
  try {
    const work = async () => {
      const order = await placeOrder(asked);
      await stop("return");
      return order;
    };
    const { value } = await lock.once(`payment:${asked.payment}`, submission, work);
    return { order: value };
  } catch (error) {
    return { failed: `${(error as { code?: string }).code}` };
  }
}

process.on("message", (message: ToDoor) => {
  if ("goOn" in message) goOn();
  else void answer(message).then((reply) => process.send?.(reply));
});
process.send?.({ failed: "not asked" } satisfies FromDoor);
