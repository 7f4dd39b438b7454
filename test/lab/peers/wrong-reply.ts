import { readFileSync } from "node:fs";
import { setImmediate, setTimeout as sleep } from "node:timers/promises";
import { Redis } from "ioredis";
import { createClient } from "redis";
import { createClient as createClient5 } from "redis5";
import { command } from "../../support/command.ts";
import { startProxy } from "../../support/proxy.ts";
import { peerVersions } from "../install-peers.ts";

/** A client, as far as this experiment uses it. */
interface Connected {
  /** Sends one command. */
  send(words: readonly string[]): Promise<unknown>;
  close(): void;
}

interface Grants {
  readonly tries: number;
  /** How many of them were told `OK`. Each is wrong: another process holds the key. */
  readonly granted: number;
}

/**
 * Eight callers try `SET NX` on a key that another process holds, all the time, on one client, whose
 * connection is reset every 40 to 70 ms.
 */
async function wrongGrants(
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

const key = "peers:wrong-reply";
const resets = 60;

interface NodeRedis {
  on(event: "error", listener: () => void): unknown;
  connect(): Promise<unknown>;
  sendCommand(words: readonly string[]): Promise<unknown>;
  destroy(): void;
}

async function connected(client: NodeRedis): Promise<Connected> {
  client.on("error", () => {});
  await client.connect();
  return { send: (words) => client.sendCommand(words), close: () => client.destroy() };
}

const { devDependencies } = JSON.parse(
  readFileSync(new URL("../../../package.json", import.meta.url), "utf8"),
) as { devDependencies: Record<string, string> };
const version5 = peerVersions()["redis5"]?.split("@").at(-1);

/** By name; each client has a connection name, as applications give it. */
const clients: readonly (readonly [name: string, (port: number) => Promise<Connected>])[] = [
  [
    `ioredis ${devDependencies["ioredis"]}`,
    async (port) => {
      const redis = new Redis(port, "127.0.0.1", { connectionName: "shop" });
      redis.on("error", () => {});
      const send = ([name = "", ...words]: readonly string[]) => redis.call(name, ...words);
      return { send, close: () => redis.disconnect() };
    },
  ],
  [
    `node-redis ${version5}`,
    (port) => connected(createClient5({ socket: { port }, name: "shop", disableClientInfo: true })),
  ],
  [
    `node-redis ${devDependencies["redis"]}`,
    (port) => connected(createClient({ socket: { port }, name: "shop" }) as unknown as NodeRedis),
  ],
];

/** The part of the results about clients that lose count of their replies. */
export async function clientReplies(redisPort: number): Promise<string> {
  const lines: string[] = [];
  for (const [name, connect] of clients) {
    await command(redisPort, "set", key, "another process", "px", 600_000);
    const { tries, granted } = await wrongGrants(redisPort, key, resets, connect);
    if ((await command(redisPort, "get", key)) !== "another process") throw new Error("not held");
    lines.push(`| ${name} | ${resets} | ${tries} | ${granted === 0 ? 0 : `**${granted}**`} |`);
  }
  await command(redisPort, "del", key);
  return `## A client that gives wrong replies

Plain \`SET NX\`, without a lock library, on a key that another process holds all the time: eight callers on one client, whose connection is reset every 40 to 70 ms (\`test/lab/peers/wrong-reply.ts\`). Every \`OK\` is wrong.

| client | resets | tries | told \`OK\` |
| --- | --- | --- | --- |
${lines.join("\n")}`;
}
