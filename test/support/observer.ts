import { command } from "./command.ts";
import { sharedRedisPort } from "./redis-server.ts";

/** What an observer on a connection of its own sees at a key, and puts there. */
export interface KeyObserver {
  get(key: string): Promise<string | null>;
  /** The owner id that the key holds: the first 36 characters of its value. */
  ownerOf(key: string): Promise<string | undefined>;
  /** -1 without an expiry, -2 without a key. */
  pttl(key: string): Promise<number>;
  exists(key: string): Promise<boolean>;
  /** The serialised value: two of them are equal only if the key is exactly what it was. */
  dump(key: string): Promise<unknown>;
  send(name: string, ...args: (string | number)[]): Promise<unknown>;
}

export function observer(port: number = sharedRedisPort()): KeyObserver {
  const send = (name: string, ...args: (string | number)[]) => command(port, name, ...args);
  const get = async (key: string) => (await send("GET", key)) as string | null;
  return {
    send,
    get,
    ownerOf: async (key) => (await get(key))?.slice(0, 36),
    pttl: async (key) => (await send("PTTL", key)) as number,
    exists: async (key) => (await send("EXISTS", key)) === 1,
    dump: (key) => send("DUMP", key),
  };
}
