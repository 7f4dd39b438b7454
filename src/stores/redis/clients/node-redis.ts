import { errorMonitor } from "node:events";
import {
  advice,
  emitterOf,
  hearErrors,
  type NodeRedisClient,
  NodeRedisServer,
  ownOptions,
  type SingleClient,
  statusOf,
} from "./node-redis-server.ts";
import {
  type ClientPort,
  type ClientStatus,
  type PortWatcher,
  type ServerPort,
  textPrefix,
} from "./port.ts";

export class NodeRedisPort extends NodeRedisServer implements ClientPort {
  readonly isCluster: boolean = false;
  readonly mayGather: boolean = false;
  readonly hasDigests: boolean = true;
  readonly writesTogether: boolean = true;
  /** Rule 22: a `select()` of the application is not visible, so each connection is asked. */
  readonly needsProof: boolean = true;
  readonly advice: string = advice;
  readonly keyPrefix: string | undefined;
  readonly #client: SingleClient;
  /** The database that a second client was opened for. */
  readonly #wanted: number | undefined;
  readonly #known = { wasOpen: false, wasReady: false };
  #database: number;
  #isGreeting = false;

  constructor(client: NodeRedisClient, wanted?: number) {
    const single = client as unknown as SingleClient;
    const keyPrefix = textPrefix(single.options?.keyPrefix);
    super(single, keyPrefix ?? "");
    this.keyPrefix = keyPrefix;
    this.#client = single;
    this.#wanted = wanted;
    this.#database = wanted ?? single.options?.database ?? 0;
  }

  get user(): string | undefined {
    return this.#client.options?.username || undefined;
  }

  get database(): number {
    return this.#database;
  }

  get status(): ClientStatus {
    const status = statusOf(this.#client, this.#known);
    return this.#isGreeting && /connecting$/.test(status) ? "connect" : status;
  }

  isReady(): boolean {
    return this.#client.isReady && this.#client.isOpen;
  }

  nodeOf(): string {
    return "";
  }

  master(): undefined {}

  servers(): readonly ServerPort[] {
    return [this];
  }

  override watch(watcher: PortWatcher): () => void {
    const emitter = emitterOf(this.#client);
    const changed = (isGreeting: boolean) => () => {
      this.#isGreeting = isGreeting;
    };
    const listeners = [
      ["connect", changed(true)],
      [errorMonitor, changed(false)],
    ] as const;
    for (const [event, listener] of listeners) emitter.on(event, listener);
    const unwatch = super.watch(watcher);
    return () => {
      unwatch();
      for (const [event, listener] of listeners) emitter.off(event, listener);
    };
  }

  /** node-redis throws an error only while nothing listens to `error`. */
  monitorErrors(heard: (error: Error) => void): () => void {
    return hearErrors(this.#client, errorMonitor, heard);
  }

  onError(heard: (error: Error) => void): void {
    hearErrors(this.#client, "error", heard);
  }

  async askDatabase(): Promise<number | undefined> {
    const info = String(await this.ask(["CLIENT", "INFO"]));
    const found = /\bdb=(\d+)/.exec(info)?.[1];
    if (found === undefined) return undefined;
    if (this.#wanted === undefined) this.#database = Number(found);
    return Number(found);
  }

  second(): ClientPort {
    const client = this.#client.duplicate({
      ...ownOptions(this.#client.options),
      // The URL would bring its database back; all else of it is among the options.
      url: undefined,
      database: this.#database,
    });
    // Its failures are `error` events.
    client.connect().catch(() => {});
    return new NodeRedisPort(client as unknown as NodeRedisClient, this.#database);
  }

  close(): void {
    this.#client.destroy();
  }
}
