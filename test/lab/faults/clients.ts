import { type AnyRedis, redisClients, type SharedOptions } from "../../support/clients.ts";

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

/** Both majors of ioredis with each of the settings. */
export const labClients: LabClient[] = redisClients.flatMap((major) =>
  settings.map(({ name, options }) => ({
    name: `${major.name}, ${name}`,
    keyPrefix: options.keyPrefix ?? "",
    connect: (port: number, login: SharedOptions = {}) =>
      major.connect(port, { ...options, ...login }),
  })),
);

export function labClient(name: string): LabClient {
  const found = labClients.find((client) => client.name === name);
  if (!found) throw new Error(`There is no client "${name}" in the fault lab.`);
  return found;
}
