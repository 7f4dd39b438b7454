import { acquireCommand } from "../../../src/stores/redis/commands/acquire.ts";
import { Faults } from "./faults.ts";
import { isRecordKey, lockValue, longestLifeMs, ownerIdOf } from "./invariants/owners.ts";
import { Operations } from "./operations.ts";
import type { Schedule } from "./schedule.ts";
import { installVirtualTime, Machine, on } from "./time/event-loop.ts";
import { World } from "./world.ts";

/** No run takes longer than this: something goes on for ever. */
const mostSteps = 100_000;

/** Runs one schedule to its end, or to the first thing that must not be. */
export async function run(schedule: Schedule, isTold = false): Promise<World> {
  // Before anything is made: a clock that is read in a constructor is virtual too.
  installVirtualTime();
  const world = new World(schedule, isTold);
  const unhandled = (reason: unknown) => {
    world.broken("rejection", String(reason instanceof Error ? reason.stack : reason));
  };
  process.on("unhandledRejection", unhandled);
  try {
    await play(world);
  } finally {
    process.off("unhandledRejection", unhandled);
  }
  return world;
}

async function play(world: World): Promise<void> {
  const { loop } = world;
  const operations = new Operations(world);
  const faults = new Faults(world);
  const until = async (isDone: () => boolean) => {
    await loop.until(() => world.check() || loop.steps > mostSteps || isDone());
    if (loop.steps > mostSteps) world.broken("leftover", "it never comes to an end");
    return world.violation === undefined;
  };

  if (!(await until(() => operations.areOver && loop.now >= faults.overAt))) return;
  world.note(() => "           every operation and every fault is over");

  const alive = world.processes.filter(({ machine }) => !machine.isDead);
  let closing = alive.length;
  for (const process of alive) {
    process.machine.after(0, () => {
      void operations.close(process, 0).finally(() => closing--);
    });
  }
  if (!(await until(() => closing === 0))) return;

  for (const key of world.server.keys.names()) if (!isRecordKey(key)) knock(world, key);

  const { replica, times } = world.schedule;
  const { acquireTimeoutMs, ttlMs, maxHoldMs } = times;
  const patienceMs = 2 * acquireTimeoutMs + ttlMs;
  // A complete that comes after the close has no connection to wait on, and is asked again to the end.
  const retiredMs = replica === undefined ? patienceMs : Math.max(patienceMs, maxHoldMs);
  // A client whose connection was reset connects again and sends its SELECT, with a timer of its own.
  const restUntil = Math.max(loop.now + retiredMs + 200, world.lastResetAt + 1_000);
  new Machine(loop, "outside").after(restUntil - loop.now, () => {});
  if (!(await until(() => loop.now >= restUntil))) return;
  checkLeftovers(world);
}

/** P3: somebody asks for a user whose holder is gone, whatever Redis' clock has done since. */
function knock(world: World, key: string): void {
  const { executions, loop, schedule, server } = world;
  const { times } = schedule;
  const command = { key, ownerId: "somebody who asks", times, holder: "", submission: undefined };
  const keys: string[] = [];
  // Long after its deadline, so that it takes nothing.
  const args = acquireCommand.head?.({ command, deadlineMs: 0, floorUs: 0 }) ?? [];
  const request = { command, deadlineMs: 0, answer() {} };
  acquireCommand.add(request, keys, args, () => "");
  const { script } = acquireCommand;
  const copy = { script, keys, declared: keys, args, sentAt: loop.now };
  executions.watch(copy, () => server.evaluate(script, keys, args));
  const entry = server.look(key);
  if (entry === undefined) return;
  const leftMs = (entry.expiresAt ?? Number.POSITIVE_INFINITY) - server.nowMs;
  if (leftMs <= longestLifeMs(lockValue(entry.value), times)) return;
  world.broken("stranded", `${key} keeps its user out for ${leftMs} ms`);
}

/** The network is healthy, every lock is closed, and every retire has had its time. */
function checkLeftovers(world: World): void {
  const { server, processes, owners } = world;
  for (const { machine, client, clients } of processes) {
    if (machine.isDead) continue;
    if (machine.timers.size > 0) {
      const [timer] = machine.timers;
      world.broken("leftover", `${machine.name} has a timer of ${timer?.delayMs} ms`);
    }
    const kept = [...clients].filter(({ isDisconnecting }) => !isDisconnecting);
    if (kept.length > 1) world.broken("leftover", `${machine.name} keeps a second connection`);
    const listeners = client
      .eventNames()
      .reduce((sum, name) => sum + client.listenerCount(name), 0);
    if (listeners > 0) {
      world.broken("leftover", `${machine.name} leaves ${listeners} listeners on its client`);
    }
    on(machine, () => client.disconnect());
  }
  for (const key of server.keys.names()) {
    const entry = server.look(key);
    if (entry === undefined || isRecordKey(key)) continue;
    const owner = owners.of(ownerIdOf(entry.value), key);
    if (owner.process !== undefined) world.broken("leftover", `${key} still holds ${owner.name}`);
  }
}
