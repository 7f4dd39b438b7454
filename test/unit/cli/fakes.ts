import { vi } from "vitest";
import { Arguments, type CliTarget, type Context } from "../../../src/cli/context.ts";
import { doctor } from "../../../src/cli/doctor.ts";
import { plain } from "../../../src/cli/terminal.ts";
import type { SubmitLock } from "../../../src/index.ts";
import type { Inspection } from "../../../src/lock/store.ts";
import { type IoredisClient, IoredisPort } from "../../../src/stores/redis/clients/ioredis.ts";
import { performance } from "../../../src/time.ts";

/** 13:05:06.2, wherever the test runs. */
export const at: Date = new Date(2026, 10, 21, 13, 5, 6, 200);

/** Runs a command, and returns all lines of its terminal: results, warnings, and questions with their answers. */
export async function linesOf(
  run: (context: Context) => Promise<number | undefined>,
  argv: readonly string[],
  connection: Partial<CliTarget>,
  answers?: readonly string[],
): Promise<string[]> {
  const lines: string[] = [];
  const left = [...(answers ?? [])];
  const open = async (): Promise<CliTarget> => ({
    ...{ address: "redis-1:6379", database: 0, clientPrefix: "", ...lockOf({ state: "free" }) },
    ...connection,
  });
  const terminal = {
    ...{ env: {}, canAsk: answers !== undefined, paint: plain, progress: () => {} },
    print: (printed: readonly string[]) => void lines.push(...printed),
    warn: (printed: readonly string[]) => void lines.push(...printed),
    ask: async (question: string) => {
      const answer = left.shift();
      if (answer !== undefined) lines.push(question + answer);
      return answer;
    },
  };
  vi.useFakeTimers({ toFake: ["Date"], now: at });
  try {
    await run({ args: new Arguments(argv), terminal, open });
  } catch (error) {
    // The person typed nothing.
    if (answers === undefined || left.length > 0) throw error;
  } finally {
    vi.useRealTimers();
  }
  // Without the audit line.
  return lines.filter((line) => !line.startsWith('{"event"'));
}

/** A lock that finds this, and frees within so many milliseconds, if at all. */
export function lockOf(found: Inspection, freeInMs?: number): Pick<CliTarget, "locks"> {
  const lock: Partial<SubmitLock> = {
    inspect: async () => found,
    free: async () =>
      freeInMs === undefined ? { outcome: "changed" } : { outcome: "freed", freeInMs },
    keyFor: (user) => `lock:submit:${user}`,
    keyPrefix: "lock:submit:",
  };
  return { locks: [lock as SubmitLock] };
}

/** A server's INFO, or a section of it: field and value. */
export type Info = Readonly<Record<string, string | undefined>>;

/** Read from one server. A member is `undefined` where Redis does not permit it. */
export interface ServerFacts {
  readonly address: string;
  readonly isClusterNode: boolean;
  /** The reason why nothing can be read; `silence`: it never answers. */
  readonly failure?: string;
  readonly info?: Info | undefined;
  readonly cluster?: Info | undefined;
  readonly nodeTimeoutMs?: number | undefined;
  /** Its line in CLUSTER NODES, and its peers'. */
  readonly clusterNodes?: string | undefined;
  /** `save` of the configuration; `undefined` where it may not be read. */
  readonly save?: string;
}

interface PrefixFacts {
  readonly keyPrefix: string;
  readonly foreign: number;
  readonly endless: number;
  readonly setBack: number;
  readonly isComplete: boolean;
  /** Keys of no user id. */
  readonly strange?: number;
}

/** All that doctor may find. */
export interface Facts {
  readonly servers: readonly ServerFacts[];
  readonly check: { readonly tookMs: number; readonly failure: string | undefined };
  /** The server's error at each SCAN. */
  readonly scanFailure?: string;
  /** `undefined` where SCAN is not permitted. */
  readonly prefixes: readonly PrefixFacts[] | undefined;
  /** Whether an order has left its answer. */
  readonly hasRecords?: boolean;
}

/** Of a server that has nothing wrong. */
export const right: Info = {
  redis_version: "7.0.15",
  redis_mode: "standalone",
  role: "master",
  connected_slaves: "0",
  maxmemory: "0",
  maxmemory_policy: "noeviction",
  evicted_keys: "0",
  aof_enabled: "1",
  aof_last_write_status: "ok",
  rdb_last_bgsave_status: "ok",
};

export const rightServer: ServerFacts = {
  address: "redis-1:6379",
  info: right,
  isClusterNode: false,
};

export const rightFacts: Facts = {
  servers: [rightServer],
  check: { tookMs: 0.8, failure: undefined },
  prefixes: [{ keyPrefix: "lock:submit:", foreign: 0, endless: 0, setBack: 0, isComplete: true }],
};

const infoText = (info: Info) =>
  Object.entries(info)
    .map(([field, value]) => (value === undefined ? "" : `${field}:${value}\r\n`))
    .join("");

function given<Value>(value: Value | undefined, command = "info"): Value {
  if (value === undefined) {
    throw new Error(`NOPERM User clerk has no permissions to run the '${command}' command`);
  }
  return value;
}

/** What every client of ioredis has. */
const face = { status: "ready", on: () => {}, off: () => {}, disconnect: () => {} };

/** Lets doctor look at a Redis of which all this is true, and returns what it prints. */
export async function examined(
  facts: Facts,
  user?: string,
  ...options: string[]
): Promise<string[]> {
  let clock = 0;
  const now = vi.spyOn(performance, "now").mockImplementation(() => clock);
  const { servers, check, prefixes } = facts;
  const nodes = servers.map((server) => {
    const [host, port] = server.address.split(":");
    const { info, failure } = server;
    const commands: Record<string, (...args: string[]) => Promise<unknown>> = {
      info: async () => {
        if (failure === "silence") await new Promise(() => {});
        if (failure !== undefined) throw new Error(failure);
        return `# Server\r\n${infoText(given(info))}`;
      },
      cluster: async (what) =>
        what === "NODES" ? given(server.clusterNodes) : infoText(given(server.cluster)),
      config: async (_get, name) => [
        name,
        name === "save" ? given(server.save) : `${given(server.nodeTimeoutMs)}`,
      ],
      dbsize: async () => 1_000,
      scan: async (_cursor, _match, pattern) => {
        if (facts.scanFailure !== undefined) throw new Error(facts.scanFailure);
        if (pattern?.startsWith("{")) {
          return ["0", facts.hasRecords ? [`{lock:submit:42}:${"a".repeat(22)}`] : []];
        }
        const prefix = given(prefixes, "scan").find(({ keyPrefix }) => `${keyPrefix}*` === pattern);
        if (!prefix?.isComplete) clock += 10_000;
        const keys = Array.from(
          { length: (prefix?.foreign ?? 0) + (prefix?.setBack ?? 0) },
          (_, user) => `${prefix?.keyPrefix}${user}`,
        );
        for (let at = 0; at < (prefix?.strange ?? 0); at++) keys.push(`${prefix?.keyPrefix}%${at}`);
        return [prefix?.isComplete ? "0" : "1", keys];
      },
    };
    return {
      ...face,
      options: { host, port },
      call: (name: string, ...args: string[]) => given(commands[name])(...args),
      eval: async () => 1,
      duplicate: () => {},
    };
  });
  const client = servers[0]?.isClusterNode
    ? { ...face, isCluster: true, options: {}, nodes: () => nodes, eval: nodes[0]?.eval }
    : nodes[0];
  const locks = (prefixes ?? [undefined]).map((prefix) => ({
    keyPrefix: prefix?.keyPrefix ?? "lock:submit:",
    check: async () => {
      if (check.failure !== undefined) throw new Error(check.failure);
      clock += check.tookMs;
    },
    keyFor: (user: string) => `${prefix?.keyPrefix}${encodeURIComponent(user)}`,
    inspect: async (user: string) => {
      const { foreign = 0, endless = 0 } = prefix ?? {};
      if (Number(user) >= foreign) return { state: "cooldown", clockSetBack: true };
      const expiresInMs = Number(user) < endless ? Number.POSITIVE_INFINITY : 1_000;
      return { state: "foreign", expiresInMs };
    },
  }));
  try {
    const port = new IoredisPort(client as unknown as IoredisClient);
    const connection = { client: port, locks, user } as unknown as Partial<CliTarget>;
    return await linesOf(doctor, ["doctor", ...options], connection);
  } finally {
    now.mockRestore();
  }
}
