import { once } from "node:events";
import type { Server } from "node:http";
import type { AddressInfo } from "node:net";
import { SubmitLock } from "submit-lock";
import { play } from "./customer.ts";
import { orderTakesMs } from "./shop.ts";
import { openStore } from "./store.ts";

/**
 * Runs a shop: serves it, plays customers, and then goes on serving until a signal comes; with
 * `--once` it ends after the play. The exit code tells whether all went as it should.
 */
export async function serve(
  framework: string,
  createShopServer: (lock: SubmitLock) => Server,
): Promise<void> {
  try {
    await run(framework, createShopServer);
  } catch (error) {
    console.error(error instanceof Error ? error.message : error);
    process.exitCode = 1;
  }
}

async function run(
  framework: string,
  createShopServer: (lock: SubmitLock) => Server,
): Promise<void> {
  // Heard from here on, also in the middle of the play. A second one ends the process at once.
  const signalled = Promise.race([once(process, "SIGINT"), once(process, "SIGTERM")]);
  const { store, place, quit } = await openStore(process.env["REDIS_URL"]);
  // A prefix of its own: the REDIS_URL of a shell may be that of a shop in production.
  const lock = new SubmitLock({ store, keyPrefix: "demo:lock:submit:" });
  const server = createShopServer(lock);
  try {
    await lock.check();
    await listen(server, process.env["PORT"]);
    const url = `http://127.0.0.1:${(server.address() as AddressInfo).port}`;
    console.log(`A shop on ${framework}: ${url}`);
    console.log(`Locks are kept ${place}. An order takes ${orderTakesMs} ms.\n`);
    const playing = play(url, console.log).then(report);
    if (process.argv.includes("--once")) {
      await Promise.race([playing, signalled]);
    } else {
      const invite = () => console.log(`Now it is your turn: ${url} (Ctrl+C ends it)`);
      await Promise.race([playing.then(invite).then(() => signalled), signalled]);
      console.log("Closing.");
    }
  } finally {
    // In this order: orders that are under way keep their locks, and the locks their connection.
    await close(server);
    await lock.close();
    await quit();
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

/** `PORT`, else 3000, else a free one. */
async function listen(server: Server, given: string | undefined): Promise<void> {
  if (given !== undefined && given !== "") {
    if (!/^\d{1,5}$/.test(given) || Number(given) > 65_535) {
      throw new Error(`PORT has to be a number from 0 to 65535, and is ${JSON.stringify(given)}.`);
    }
    await tryToListen(server, Number(given)).catch((error: NodeJS.ErrnoException) => {
      throw new Error(`Port ${given} cannot be used (${error.code}). Set PORT to another one.`);
    });
    return;
  }
  await tryToListen(server, 3000).catch(() => tryToListen(server, 0));
}

async function tryToListen(server: Server, port: number): Promise<void> {
  server.listen(port, "127.0.0.1");
  await once(server, "listening");
}

/** Takes no new requests and waits for those that are under way. */
async function close(server: Server): Promise<void> {
  if (!server.listening) return;
  const closed = once(server, "close");
  server.close();
  // A connection that becomes idle from here on would be kept for its next request.
  const sweeping = setInterval(() => server.closeIdleConnections(), 50);
  await closed;
  clearInterval(sweeping);
}
