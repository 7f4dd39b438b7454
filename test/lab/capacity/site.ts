import { Child } from "../../support/child.ts";
import { compiled } from "../../support/compiled.ts";
import { now } from "../shop/protocol.ts";
import type { Durable } from "./durable.ts";
import type { FromLoad, Load, LoadSettings, Result, ToLoad } from "./load-process.ts";

interface Setup extends Partial<Omit<LoadSettings, "index">> {
  readonly processes?: number;
}

/** Servers, and processes that load them. */
export class Site {
  readonly nodes: readonly Durable[];
  readonly #children: readonly Child<FromLoad, ToLoad>[];

  private constructor(nodes: readonly Durable[], children: readonly Child<FromLoad, ToLoad>[]) {
    this.nodes = nodes;
    this.#children = children;
  }

  static async open(nodes: readonly Durable[], setup: Setup = {}): Promise<Site> {
    const { ackReplicas, clients = 1, isCluster = false, processes = 1 } = setup;
    const program = await compiled({ file: new URL("./load-process.ts", import.meta.url) });
    const ports = setup.ports ?? nodes.map(({ server }) => server.port);
    const children = Array.from({ length: processes }, (_, index) => {
      const settings: LoadSettings = { ackReplicas, clients, index, isCluster, ports };
      return new Child<FromLoad, ToLoad>(program, [JSON.stringify(settings)]);
    });
    await Promise.all(children.map((child) => child.next()));
    return new Site(nodes, children);
  }

  /** @returns sums of counts, and the longest of times. */
  async ask(message: ToLoad, during?: () => Promise<unknown>): Promise<Result> {
    const results = Promise.all(this.#children.map(async (child) => (await child.next()).result));
    // One that is killed meanwhile.
    results.catch(() => {});
    for (const child of this.#children) child.send(message);
    await during?.();
    if (during) for (const child of this.#children) child.send({ stops: true });
    const all: Result = {};
    for (const result of await results) {
      for (const [name, value] of Object.entries(result)) {
        const before = all[name] ?? 0;
        all[name] = / p\d/.test(name) ? Math.max(before, value) : before + value;
      }
    }
    return all;
  }

  /** Orders of all processes together, while something happens. */
  async load(of: Load, during: () => Promise<unknown>): Promise<Result> {
    return await this.ask(
      { load: { ...of, perSecond: of.perSecond / this.#children.length } },
      during,
    );
  }

  /** @returns with what it cost the servers; processor time is that of their threads, not of a fork. */
  async measured(what: string, work: () => Promise<Result>): Promise<Result> {
    const look = () => Promise.all(this.nodes.map((node) => node.info()));
    const [from, before] = [now(), await look()];
    const result = await work();
    const [seconds, after] = [(now() - from) / 1_000, await look()];
    const each = (name: string) =>
      after.map((numbers, at) => (numbers[name] ?? 0) - (before[at]?.[name] ?? 0));
    const sum = (name: string) => each(name).reduce((total, one) => total + one, 0);
    const cpu = sum("used_cpu_sys") + sum("used_cpu_user");
    const commands = "total_commands_processed";
    const { acquired = 0, contended = 0 } = result;
    return printed(what, {
      ...result,
      "Redis µs": (1e6 * cpu) / (acquired + contended || 1),
      "Redis cores": cpu / seconds,
      "most to mean": (Math.max(...each(commands)) * this.nodes.length) / sum(commands),
      "new connections": sum("total_connections_received"),
      "commands/s": sum(commands) / seconds,
      "B/s in": sum("total_net_input_bytes") / seconds,
      "B/s out": sum("total_net_output_bytes") / seconds,
    });
  }

  signal(signal: NodeJS.Signals): void {
    for (const child of this.#children) child.signal(signal);
  }

  async close(): Promise<void> {
    await Promise.all(this.#children.map((child) => child.kill()));
    await Promise.all(this.nodes.map((node) => node.stop()));
  }
}

export function printed(what: string, result: Result): Result {
  const shown = Object.entries(result).map(([name, value]) => [
    name,
    Number(value.toPrecision(value < 1_000 ? 3 : 8)),
  ]);
  console.log(`${what}: ${JSON.stringify(Object.fromEntries(shown))}`);
  return result;
}
