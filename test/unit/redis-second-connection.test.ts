import { EventEmitter } from "node:events";
import { setTimeout as sleep } from "node:timers/promises";
import { expect, test } from "vitest";
import { type IoredisClient, IoredisPort } from "../../src/stores/redis/clients/ioredis.ts";
import { ConnectionPair } from "../../src/stores/redis/connection-pair.ts";
import { until } from "../support/until.ts";

/** A client that was ready and is lost, and whose duplicates stay in one state for ever. */
class LostClient extends EventEmitter implements IoredisClient {
  status = "ready";
  readonly duplicates: EventEmitter[] = [];
  readonly #stateOfDuplicates: string;

  constructor(stateOfDuplicates: string) {
    super();
    this.#stateOfDuplicates = stateOfDuplicates;
  }

  duplicate(): unknown {
    const status = this.#stateOfDuplicates;
    const client = Object.assign(new EventEmitter(), { status, disconnect: () => {} });
    this.duplicates.push(client);
    return client;
  }

  eval(): Promise<unknown> {
    return new Promise(() => {});
  }

  connect(): Promise<void> {
    return Promise.resolve();
  }

  disconnect(): void {}
}

function lost(stateOfDuplicates: string) {
  const client = new LostClient(stateOfDuplicates);
  const pair = ConnectionPair.of(new IoredisPort(client));
  const detach = pair.attach(() => {});
  client.status = "reconnecting";
  const pick = (commandTimeoutMs: number) => pair.pick(0, "key", commandTimeoutMs);
  return { client, pick, detach };
}

test("a second connection whose handshake is not answered is replaced", async () => {
  const { client, pick, detach } = lost("connect");
  const isReplaced = () => {
    pick(200);
    return client.duplicates.length > 1;
  };
  await until(isReplaced, { what: "another duplicate" });
  detach();
});

test.each([
  ["that still looks for a server", "connecting", 200],
  ["whose lock has patience", "connect", 10_000],
])("a second connection %s is left its time", async (_name, state, commandTimeoutMs) => {
  const { client, pick, detach } = lost(state);
  const end = performance.now() + 2_500;
  while (performance.now() < end) {
    pick(commandTimeoutMs);
    await sleep(50);
  }
  expect(client.duplicates).toHaveLength(1);
  detach();
});
