import { setTimeout as sleep } from "node:timers/promises";
import { Redis } from "ioredis";
import { now } from "../service/protocol.ts";
import type { Node } from "./topology.ts";

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
