import { once } from "node:events";
import type { Server } from "node:http";
import type { AddressInfo } from "node:net";

/** @param given `PORT`. @throws for what is no port. */
export function portFrom(given: string | undefined): number | undefined {
  if (given === undefined || given === "") return undefined;
  if (!/^\d{1,5}$/.test(given) || Number(given) > 65_535) {
    throw new Error(`PORT has to be a number from 0 to 65535, and is ${JSON.stringify(given)}.`);
  }
  return Number(given);
}

/** @param port the given one, else 3000, else a free one. @returns the URL. */
export async function listen(server: Server, port: number | undefined): Promise<string> {
  if (port === undefined) {
    await tryToListen(server, 3000).catch(() => tryToListen(server, 0));
  } else {
    await tryToListen(server, port).catch((error: NodeJS.ErrnoException) => {
      throw new Error(`Port ${port} cannot be used (${error.code}). Set PORT to another one.`);
    });
  }
  return `http://127.0.0.1:${(server.address() as AddressInfo).port}`;
}

async function tryToListen(server: Server, port: number): Promise<void> {
  server.listen(port, "127.0.0.1");
  await once(server, "listening");
}
