import { Cluster, Redis } from "ioredis";
import { Cluster as Cluster5, Redis as Redis5 } from "ioredis5";
import type { AnyClient } from "../../support/clients.ts";
import type { Target } from "./protocol.ts";

/** What the README recommends. */
const recommended = {
  connectTimeout: 1_000,
  socketTimeout: 5_000,
  retryStrategy: (times: number) => Math.min(50 * times, 500),
  reconnectOnError: (error: Error) => error.message.includes("READONLY"),
};

const at = (port: number) => ({ host: "127.0.0.1", port });

/** A client as an application makes it. */
export function connect(target: Target, major: 5 | 6): AnyClient {
  switch (target.kind) {
    case "single": {
      const options = { ...at(target.port), ...recommended };
      return major === 6 ? new Redis(options) : new Redis5(options);
    }
    case "sentinel": {
      const options = {
        ...recommended,
        name: target.name,
        sentinels: target.ports.map(at),
        sentinelRetryStrategy: recommended.retryStrategy,
      };
      return major === 6 ? new Redis(options) : new Redis5(options);
    }
    case "cluster": {
      const { retryStrategy, ...redisOptions } = recommended;
      const options = { redisOptions, clusterRetryStrategy: retryStrategy };
      const nodes = target.ports.map(at);
      return major === 6 ? new Cluster(nodes, options) : new Cluster5(nodes, options);
    }
  }
}
