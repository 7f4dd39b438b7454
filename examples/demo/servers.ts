import { type ChildProcess, fork } from "node:child_process";
import { once } from "node:events";
import type { Server } from "node:http";
import type { AddressInfo } from "node:net";
import { lendDatabase } from "./shared-database.ts";
import type { Database } from "./shop/database.ts";

/** A server of the shop that the front hands requests to. */
export interface ShopServer {
  readonly name: string;
  /** `undefined` while it is down. */
  readonly port: number | undefined;
  /** How many requests the front has with it. */
  busy: number;
  /** SIGKILL; it comes back by itself. `undefined` for the one in this process. */
  readonly kill: (() => void) | undefined;
  /** Ends it when its orders are done. */
  close(): Promise<void>;
}

export async function startHere(server: Server): Promise<ShopServer> {
  server.listen(0, "127.0.0.1");
  await once(server, "listening");
  const { port } = server.address() as AddressInfo;
  return { name: "server", port, busy: 0, kill: undefined, close: () => drain(server) };
}

export interface ProcessOptions {
  /** @defaultValue the file that this process was started with */
  readonly file?: string;
  readonly env: { readonly REDIS_URL: string; readonly PAYMENTS_URL: string } & NodeJS.ProcessEnv;
  /** What it is lent where there is no `DATABASE_URL`. */
  readonly db?: Database;
}

/** A process of its own: the same file once more, with `--server`. */
export async function startProcess(
  name: string,
  { file = process.argv[1] as string, db, ...given }: ProcessOptions,
): Promise<ShopServer> {
  const env = { ...process.env, ...given.env, SERVER_NAME: name };
  let port: number | undefined;
  let isClosing = false;
  let child: ChildProcess;

  async function start(): Promise<void> {
    child = fork(file, ["--server"], { env });
    if (db !== undefined) lendDatabase(child, db);
    const started = new Promise<number>((resolve, reject) => {
      child.on("message", (message: { port?: number }) => {
        if (message.port !== undefined) resolve(message.port);
      });
      child.once("exit", (code) => reject(new Error(`${name} ended with ${code}`)));
    });
    child.once("exit", () => {
      port = undefined;
      if (isClosing) return;
      start().catch((error: Error) => {
        if (!isClosing) console.error(error.message);
      });
    });
    port = await started;
  }

  await start();
  return {
    name,
    get port() {
      return port;
    },
    busy: 0,
    kill: () => void child.kill("SIGKILL"),
    async close() {
      isClosing = true;
      if (child.exitCode !== null || child.signalCode !== null) return;
      const ended = once(child, "exit");
      // One that has only just been started has no order, and would not hear it.
      if (port === undefined) child.kill("SIGKILL");
      else child.send({ close: true });
      await ended;
    },
  };
}

/** Takes no new requests and waits for those that are under way. */
export async function drain(server: Server): Promise<void> {
  if (!server.listening) return;
  const closed = once(server, "close");
  server.close();
  // A connection that becomes idle from here on would be kept for its next request.
  const sweeping = setInterval(() => server.closeIdleConnections(), 50);
  await closed;
  clearInterval(sweeping);
}
