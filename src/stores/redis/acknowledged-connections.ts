import { inNeutralContext } from "../../neutral-context.ts";
import { ConnectionPair } from "./connection-pair.ts";
import { duplicate } from "./duplicate.ts";
import { databaseOf, onError, type RedisClient } from "./ioredis.ts";

/**
 * Connections for what waits for replicas, because `WAIT` blocks the one that it is sent on: a pair
 * of their own a client, open while a lock uses them.
 */
export class AcknowledgedConnections {
  static readonly #ofClients = new WeakMap<RedisClient, AcknowledgedConnections>();
  readonly #client: RedisClient;
  #users = 0;
  #own: RedisClient | undefined;
  #detach: () => void = () => {};

  static of(client: RedisClient): AcknowledgedConnections {
    let connections = AcknowledgedConnections.#ofClients.get(client);
    if (connections === undefined) {
      connections = new AcknowledgedConnections(client);
      AcknowledgedConnections.#ofClients.set(client, connections);
    }
    return connections;
  }

  private constructor(client: RedisClient) {
    this.#client = client;
  }

  /** @returns ends this use; the last one closes what was opened. */
  attach(): () => void {
    // A first order is not to wait for a connection.
    if (this.#users++ === 0) {
      this.#client.on("end", this.#close);
      this.pair();
    }
    let isAttached = true;
    return () => {
      if (!isAttached) return;
      isAttached = false;
      if (--this.#users > 0) return;
      this.#client.off("end", this.#close);
      this.#close();
    };
  }

  /** `undefined` where nobody would close them, or the application has closed its client. */
  pair(): ConnectionPair | undefined {
    if (this.#users === 0 || this.#client.status === "end") return undefined;
    // A client of Sentinels may end for good while it looks for its master, and the application may
    // have selected another database.
    const own = this.#own;
    if (own && (own.status === "end" || databaseOf(own) !== databaseOf(this.#client)))
      this.#close();
    this.#own ??= inNeutralContext(() => this.#open());
    return ConnectionPair.of(this.#own);
  }

  #open(): RedisClient {
    const own = duplicate(this.#client);
    // The pair hears them too, and says of which one a connection was lost.
    onError(own, () => {});
    this.#detach = ConnectionPair.of(own).attach(() => {});
    return own;
  }

  readonly #close = (): void => {
    this.#detach();
    this.#detach = () => {};
    this.#own?.disconnect();
    this.#own = undefined;
  };
}
