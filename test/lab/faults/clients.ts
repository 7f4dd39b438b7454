import { type AnyRedis, ioredisClients, type SharedOptions } from "../../support/clients.ts";
import { type NodeRedisOptions, nodeRedis } from "../../support/node-redis.ts";

/** A client as an application may have it. */
export interface LabClient {
  readonly name: string;
  readonly keyPrefix: string;
  connect(port: number, login?: SharedOptions): AnyRedis;
}

const settings: { name: string; options: SharedOptions }[] = [
  { name: "defaults", options: {} },
  { name: "commandTimeout 200", options: { commandTimeout: 200 } },
  {
    name: "no resend, no queue",
    options: { autoResendUnfulfilledCommands: false, enableOfflineQueue: false },
  },
  { name: "auto-pipelining", options: { enableAutoPipelining: true } },
  { name: "keyPrefix", options: { keyPrefix: "shop:" } },
  { name: "stringNumbers", options: { stringNumbers: true } },
];

const nodeRedisSettings: { name: string; options: NodeRedisOptions }[] = [
  { name: "defaults", options: {} },
  { name: "RESP 2", options: { RESP: 2 } },
  { name: "no queue", options: { disableOfflineQueue: true } },
  { name: "short queue", options: { commandsQueueMaxLength: 50 } },
  { name: "keyPrefix", options: { keyPrefix: "shop:" } },
  { name: "pingInterval 100", options: { pingInterval: 100 } },
];

/** Both majors of ioredis and node-redis, each with its settings. */
export const labClients: LabClient[] = [
  ...ioredisClients.flatMap((major) =>
    settings.map(({ name, options }) => ({
      name: `${major.name}, ${name}`,
      keyPrefix: options.keyPrefix ?? "",
      connect: (port: number, login: SharedOptions = {}) =>
        major.connect(port, { ...options, ...login }),
    })),
  ),
  ...nodeRedisSettings.map(({ name, options }) => ({
    name: `node-redis 6, ${name}`,
    keyPrefix: String(options.keyPrefix ?? ""),
    connect: (port: number, login: SharedOptions = {}) => nodeRedis(port, login, options),
  })),
];

export function labClient(name: string): LabClient {
  const found = labClients.find((client) => client.name === name);
  if (!found) throw new Error(`There is no client "${name}" in the fault lab.`);
  return found;
}
