import { createConnection, type Socket } from "node:net";
import type { Node } from "./topology.ts";

/** A server in one of its lives. */
type Life = string;

/**
 * Which server took which owner id, by the word of the servers themselves: every one of them tells
 * what it executes, and a replica tells what it is sent.
 */
export class Sightings {
  readonly #sockets = new Set<Socket>();
  #over = false;
  /** Where the script ran that took the key. */
  readonly #takenBy = new Map<string, Life>();
  /** Who has executed that write, first hand or as a replica. */
  readonly #known = new Map<string, Set<Life>>();

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
    const set = /^\+[\d.]+ \[\d+ (\S+)\] "set" "[^"]*" "([^"]*)"/i.exec(line);
    const [, source, ownerId] = set ?? [];
    if (source === undefined || ownerId === undefined) return;
    if (source === "lua") this.#takenBy.set(ownerId, life);
    const known = this.#known.get(ownerId) ?? new Set();
    this.#known.set(ownerId, known.add(life));
  }

  /**
   * Whether two holders had the lock of two servers, neither of which knew of the other's: then a
   * failover has lost the write of one of them. One that nobody heard of was taken by a server that
   * had just been cut off from everybody; two on one server are never excused.
   */
  wereApart(one: string, two: string): boolean {
    const [by1, by2] = [this.#takenBy.get(one), this.#takenBy.get(two)];
    if (by1 === by2) return false;
    const knew = (by: Life | undefined, of: string) =>
      by !== undefined && this.#known.get(of)?.has(by) === true;
    return !knew(by1, two) && !knew(by2, one);
  }

  stop(): void {
    this.#over = true;
    for (const socket of this.#sockets) socket.destroy();
  }
}
