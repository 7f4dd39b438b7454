import { slotOf } from "../../src/stores/redis/clients/slots.ts";
import { command } from "./command.ts";
import { freshUser } from "./ids.ts";
import type { RedisCluster } from "./redis-cluster.ts";

/** A slot on its way from one master to another, as `redis-cli --cluster reshard` leaves it between two keys. */
export interface SlotMove {
  readonly slot: number;
  /** Moves a key; nothing happens to one that is not there. */
  move(key: string): Promise<void>;
  /** Which of the two has the key. */
  whereIs(key: string): Promise<"source" | "target" | undefined>;
  /** Moves what is left, and says so to all masters. */
  finish(): Promise<void>;
}

/**
 * Begins to move the slot of the key from the first master to the second.
 *
 * @param send over a connection of its own for each command, unless another way is given.
 */
export async function beginMove(
  { ports }: Pick<RedisCluster, "ports">,
  key: string,
  send: typeof command = command,
): Promise<SlotMove> {
  const [source, target] = ports as [number, number];
  const slot = slotOf(key);
  const idOf = async (port: number) => String(await send(port, "CLUSTER", "MYID"));
  const setSlot = (port: number, ...state: string[]) =>
    send(port, "CLUSTER", "SETSLOT", slot, ...state);
  const [sourceId, targetId] = await Promise.all([idOf(source), idOf(target)]);
  await setSlot(target, "IMPORTING", sourceId);
  await setSlot(source, "MIGRATING", targetId);
  const move = async (moved: string) => {
    await send(source, "MIGRATE", "127.0.0.1", target, moved, 0, 5_000);
  };
  const keysOn = async (port: number) =>
    (await send(port, "CLUSTER", "GETKEYSINSLOT", slot, 1_000)) as string[];
  return {
    slot,
    move,
    async whereIs(looked) {
      if ((await keysOn(source)).includes(looked)) return "source";
      return (await keysOn(target)).includes(looked) ? "target" : undefined;
    },
    async finish() {
      // What is written meanwhile goes to the target, so this comes to an end.
      for (const left of await keysOn(source)) await move(left);
      for (const port of [target, source, ...ports.slice(2)]) await setSlot(port, "NODE", targetId);
    },
  };
}

const used = new Set<number>();

/** A user whose lock lies on the first master, in a slot that no other test moves. */
export function userOnFirst({ ports }: RedisCluster, keyOf: (user: string) => string): string {
  for (;;) {
    const user = freshUser();
    const slot = slotOf(keyOf(user));
    if (used.has(slot) || slot >= Math.floor(16_384 / ports.length)) continue;
    used.add(slot);
    return user;
  }
}
