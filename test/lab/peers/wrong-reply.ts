import { setImmediate, setTimeout as sleep } from "node:timers/promises";
import { startProxy } from "../../support/proxy.ts";

/** A client, as far as this experiment uses it. */
export interface Connected {
  /** Sends one command. */
  send(words: readonly string[]): Promise<unknown>;
  close(): void;
}

export interface Grants {
  readonly tries: number;
  /** How many of them were told `OK`. Each is wrong: another process holds the key. */
  readonly granted: number;
}

/**
 * Eight callers try `SET NX` on a key that another process holds, all the time, on one client, whose
 * connection is reset every 40 to 70 ms.
 */
export async function wrongGrants(
  redisPort: number,
  key: string,
  resets: number,
  connect: (port: number) => Promise<Connected>,
): Promise<Grants> {
  const proxy = await startProxy(redisPort);
  const client = await connect(proxy.port);
  let [tries, granted, isOver] = [0, 0, false];
  const caller = async () => {
    for (; !isOver; tries++) {
      const reply = await client.send(["SET", key, "me", "NX", "PX", "10000"]).catch(() => "error");
      if (reply === "OK") granted++;
      await setImmediate();
    }
  };
  const callers = Array.from({ length: 8 }, caller);
  for (let reset = 0; reset < resets; reset++) {
    await sleep(40 + 30 * Math.random());
    proxy.resetAll();
  }
  isOver = true;
  client.close();
  // A client may leave calls without an end.
  await Promise.race([Promise.all(callers), sleep(1_000)]);
  await proxy.stop();
  return { tries, granted };
}
