import { createConnection, type Socket } from "node:net";
import { setTimeout as sleep } from "node:timers/promises";
import { Redis } from "ioredis";
import { now } from "../shop/protocol.ts";
import type { Node } from "./topology.ts";

/** A server in one of its lives. */
type Life = string;

/**
 * Which server took which owner id, by the word of the servers themselves: every one of them tells
 * what it executes, and a replica tells what it is sent.
 */
export class WriteObserver {
  readonly #sockets = new Set<Socket>();
  #over = false;
  /** Where and when the script ran that took the key. */
  readonly #taken = new Map<string, { readonly by: Life; readonly at: number }>();
  /** When each server executed that write first, on its own account or as a replica. */
  readonly #known = new Map<string, Map<Life, number>>();
  /** Counts the lines: what one server tells comes in its order. */
  #lines = 0;

  /** Listens to a server until its life is over. Resolves when it has begun to tell. */
  async listen(node: Node): Promise<void> {
    const { life } = node;
    await new Promise<void>((resolve) => {
      const connect = (): void => {
        if (this.#over || node.life !== life) {
          resolve();
          return;
        }
        const socket = createConnection({ port: node.port, host: "127.0.0.1" });
        this.#sockets.add(socket);
        socket.on("error", () => {});
        socket.once("close", () => {
          this.#sockets.delete(socket);
          // A master that becomes a replica closes everybody's connections.
          setTimeout(connect, 20).unref();
        });
        let pending = "";
        socket.on("data", (chunk: Buffer) => {
          const lines = (pending + chunk.toString("latin1")).split("\r\n");
          pending = lines.pop() ?? "";
          for (const line of lines) this.#heard(`${node.port}#${life}`, line);
          resolve();
        });
        socket.write("MONITOR\r\n");
      };
      connect();
    });
  }

  #heard(life: Life, line: string): void {
    const set = /^\+[\d.]+ \[\d+ (\S+)\] "set" "[^"]*" "([0-9a-f-]{36})[^"]*"/i.exec(line);
    const [, source, ownerId] = set ?? [];
    if (source === undefined || ownerId === undefined) return;
    const at = this.#lines++;
    if (source === "lua") this.#taken.set(ownerId, { by: life, at });
    const known = this.#known.get(ownerId) ?? new Map<Life, number>();
    if (!known.has(life)) known.set(life, at);
    this.#known.set(ownerId, known);
  }

  /**
   * Whether two holders had the lock of two servers, neither of which knew of the other's: then a
   * failover has lost the write of one of them. One that nobody heard of was taken by a server that
   * had just been cut off from everybody; two on one server are never excused.
   */
  wereApart(one: string, two: string): boolean {
    if (this.#taken.get(one)?.by === this.#taken.get(two)?.by) return false;
    return !this.#knewOf(two, one) && !this.#knewOf(one, two);
  }

  /** Whether the server that took the lock for `taker` had the key of `other` before. */
  #knewOf(other: string, taker: string): boolean {
    const taken = this.#taken.get(taker);
    if (taken === undefined) return false;
    const since = this.#known.get(other)?.get(taken.by);
    return since !== undefined && since < taken.at;
  }

  stop(): void {
    this.#over = true;
    for (const socket of this.#sockets) socket.destroy();
  }
}

/**
 * Looks for the moment from which somebody could have written: it deletes a key that is not there,
 * which leaves nothing behind and is refused by whatever would refuse an acquire.
 */
export class WriteProbe {
  /** When another server than the victim first took a write, or `undefined` if none has. */
  acceptedAt: number | undefined;
  readonly #key: string;
  readonly #clients: readonly Redis[];
  #over = false;

  /** @param key one whose slot the victim serves. */
  constructor(nodes: readonly Node[], victim: Node, key: string) {
    this.#key = `{${key}}:probe`;
    this.#clients = nodes
      .filter((node) => node !== victim)
      .map(({ port }) => {
        const client = new Redis(port, "127.0.0.1", {
          enableReadyCheck: false,
          enableOfflineQueue: false,
          maxRetriesPerRequest: 0,
          // A replica that is promoted closes its connections.
          retryStrategy: () => 10,
        });
        client.on("error", () => {});
        return client;
      });
    for (const client of this.#clients) void this.#ask(client);
  }

  stop(): void {
    this.#over = true;
    for (const client of this.#clients) client.disconnect();
  }

  async #ask(client: Redis): Promise<void> {
    while (!this.#over && this.acceptedAt === undefined) {
      const taken = await client.del(this.#key).then(
        () => true,
        () => false,
      );
      if (taken) this.acceptedAt ??= now();
      else await sleep(10);
    }
  }
}
