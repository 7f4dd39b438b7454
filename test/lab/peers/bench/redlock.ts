import Redlock, { type Lock } from "redlock";
import { type Client, type Locker, ttlMs } from "../../../../bench/locker.ts";

export function openRedlock(client: Client): Locker<Lock> {
  const redlock = new Redlock([client], { retryCount: 0 });
  // Without a listener an error of a background try ends the process.
  redlock.on("error", () => {});
  return {
    acquire: (user) => redlock.acquire([`lock:submit:${user}`], ttlMs),
    release: (lock) => lock.release(),
  };
}
