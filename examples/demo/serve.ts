import { once } from "node:events";
import type { Server } from "node:http";
import type { SubmitLock } from "submit-lock";
import { openStore } from "../store.ts";
import { serveChild } from "./child.ts";
import { createFront } from "./front.ts";
import { listen, portFrom } from "./listen.ts";
import { lockOn } from "./lock-on.ts";
import { findRedis } from "./own-redis.ts";
import { PaymentProvider } from "./payments/provider.ts";
import { play } from "./play.ts";
import { RedisLine } from "./redis-line.ts";
import { drain, type ShopServer, startHere, startProcess } from "./servers.ts";
import { openDatabase } from "./shop/database.ts";
import { Payments } from "./shop/payments.ts";
import type { Shop } from "./shop/place-order.ts";

export type MakeServer = (shop: Shop, lock: SubmitLock) => Server;

/**
 * Runs a shop: serves it with its page, plays customers, and then goes on serving until a signal
 * comes; with `--once` it ends after the play. The exit code tells whether all went as it should.
 */
export async function serve(framework: string, makeServer: MakeServer): Promise<void> {
  const isChild = process.argv.includes("--server");
  try {
    await (isChild ? serveChild(makeServer) : run(framework, makeServer));
  } catch (error) {
    console.error(error instanceof Error ? error.message : error);
    process.exitCode = 1;
    if (isChild) process.disconnect();
  }
}

async function run(framework: string, makeServer: MakeServer): Promise<void> {
  // Heard from here on, also in the middle of the play. A second one ends the process at once.
  const signalled = Promise.race([once(process, "SIGINT"), once(process, "SIGTERM")]);
  const port = portFrom(process.env["PORT"]);
  const isOnce = process.argv.includes("--once");
  // For a person who waits: the embedded database takes its time.
  if (process.stdout.isTTY) console.log("Starting a shop and its database …");
  // What was opened, to be closed the other way round: orders that are under way keep their locks,
  // and the locks their connection.
  const closers: (() => unknown)[] = [];
  const opened = <Thing>(thing: Thing, close: (thing: Thing) => unknown): Thing => {
    closers.unshift(() => close(thing));
    return thing;
  };
  try {
    // The terminal play needs nothing but Node; the page also shows what takes a Redis.
    const found = isOnce ? { url: process.env["REDIS_URL"] } : await findRedis();
    const redis = opened(found, (each) => each.stop?.());
    const { store, place } = opened(await openStore(redis.url), ({ end }) => end());
    const lock = opened(lockOn(store, "server"), (each) => each.close());
    await lock.check();
    const db = opened(await openDatabase(process.env["DATABASE_URL"]), (each) => each.close());
    const provider = opened(new PaymentProvider(), (each) => each.close());
    const paymentsUrl = await provider.listen();

    const servers: ShopServer[] = [];
    opened(servers, (all) => Promise.all(all.map((server) => server.close())));
    let line: RedisLine | undefined;
    if (!isOnce && redis.url?.startsWith("redis://")) {
      line = await RedisLine.to(redis.url);
      closers.push(() => line?.close());
      const env = { REDIS_URL: line.url, PAYMENTS_URL: paymentsUrl };
      const start = (name: string) => startProcess(name, { env, db });
      servers.push(...(await Promise.all([start("server 1"), start("server 2")])));
    } else {
      const shop = { db, payments: new Payments(paymentsUrl) };
      servers.push(await startHere(makeServer(shop, lock)));
    }

    const front = createFront({ framework, servers, db, lock, provider, line });
    opened(front, drain);
    const url = await listen(front, port);
    console.log(`A shop on ${framework}: ${url}`);
    console.log(`Locks are kept ${place}. Orders are kept ${db.place}.`);
    console.log(`An order takes ${provider.behaviour.latencyMs} ms.\n`);
    const playing = play(url, console.log).then(report);
    if (isOnce) {
      await Promise.race([playing, signalled]);
    } else {
      const invite = () => console.log(`Now it is your turn: ${url} (Ctrl+C ends it)`);
      await Promise.race([playing.then(invite).then(() => signalled), signalled]);
      console.log("Closing.");
    }
    line?.setAway(false);
  } finally {
    for (const close of closers) await close();
  }
}

function report(failures: readonly string[]): void {
  if (failures.length === 0) {
    console.log("All of it went as it should.");
    return;
  }
  console.error(`This did not go as it should:\n${failures.join("\n")}`);
  process.exitCode = 1;
}
