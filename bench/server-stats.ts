import { Redis } from "ioredis";

/** What Redis says of itself. */
export interface ServerStats {
  /** How often each command was executed, within scripts too. */
  readonly calls: ReadonlyMap<string, number>;
  /** The time of each command, in microseconds; that of a script contains what it calls. */
  readonly micros: ReadonlyMap<string, number>;
  /** Processor time of the main thread, in microseconds: parsing and networking included. */
  readonly cpuMicros: number;
  readonly usedMemory: number;
  /** What clients have sent, in bytes. */
  readonly bytesIn: number;
  /** What clients were sent, in bytes, and not the replicas. */
  readonly bytesOut: number;
  /** What all replicas were sent, in bytes. */
  readonly replicaBytes: number;
}

/** A connection for looking on, which sends nothing while something is measured. */
export class Observer {
  readonly redis: Redis;

  constructor(port: number) {
    this.redis = new Redis(port, "127.0.0.1");
  }

  async stats(): Promise<ServerStats> {
    const info = await this.redis.info("everything");
    const calls = new Map<string, number>();
    const micros = new Map<string, number>();
    for (const [, name = "", count, usec] of info.matchAll(
      /^cmdstat_(\S+?):calls=(\d+),usec=(\d+)/gm,
    )) {
      calls.set(name, Number(count));
      micros.set(name, Number(usec));
    }
    const cpu = ["used_cpu_user_main_thread", "used_cpu_sys_main_thread"].map((name) =>
      field(info, name),
    );
    const replicaBytes = field(info, "total_net_repl_output_bytes");
    return {
      calls,
      micros,
      cpuMicros: cpu.reduce((sum, value) => sum + value, 0) * 1e6,
      usedMemory: field(info, "used_memory"),
      bytesIn: field(info, "total_net_input_bytes"),
      bytesOut: field(info, "total_net_output_bytes") - replicaBytes,
      replicaBytes,
    };
  }

  close(): void {
    this.redis.disconnect();
  }
}

export interface Cost {
  readonly commands: number;
  readonly commandMicros: number;
  readonly cpuMicros: number;
  /** What clients have sent. */
  readonly bytesIn: number;
}

/** What happened in between, by the commands that were sent, not by those that scripts call. */
export function costBetween(
  before: ServerStats,
  after: ServerStats,
  sends: readonly string[],
): Cost {
  const sum = (of: "calls" | "micros"): number =>
    sends.reduce(
      (total, name) => total + (after[of].get(name) ?? 0) - (before[of].get(name) ?? 0),
      0,
    );
  return {
    commands: sum("calls"),
    commandMicros: sum("micros"),
    cpuMicros: after.cpuMicros - before.cpuMicros,
    bytesIn: after.bytesIn - before.bytesIn,
  };
}

function field(info: string, name: string): number {
  return Number(new RegExp(`^${name}:(.+)$`, "m").exec(info)?.[1] ?? Number.NaN);
}
