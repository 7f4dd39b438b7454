import { type ChildProcess, fork } from "node:child_process";
import { once } from "node:events";
import { fileURLToPath } from "node:url";
import { compiled } from "../support/compiled.ts";
import { until } from "../support/until.ts";
import type { FromShop, ToShop } from "./shop-protocol.ts";

/** A server process, seen from outside. */
export interface ShopProcess {
  readonly port: number;
  /** Every order whose handler has begun, and how many of its user's were running then. */
  readonly started: Extract<FromShop, { started: string }>[];
  finish(order: string): void;
  /** SIGKILL. */
  stop(): Promise<void>;
}

let compiling: Promise<string> | undefined;
function program(): Promise<string> {
  const file = fileURLToPath(new URL("./shop-process.ts", import.meta.url));
  compiling ??= compiled({ file });
  return compiling;
}

export async function startShopProcess(
  framework: string,
  redisPort: number,
  ttlMs?: number,
): Promise<ShopProcess> {
  const script = await program();
  const args = [framework, `${redisPort}`, ...(ttlMs === undefined ? [] : [`${ttlMs}`])];
  const child: ChildProcess = fork(script, args);
  const started: ShopProcess["started"] = [];
  let port: number | undefined;
  child.on("message", (message: FromShop) => {
    if ("port" in message) port = message.port;
    else started.push(message);
  });
  await until(
    () => {
      if (child.exitCode !== null) throw new Error(`The shop ended with ${child.exitCode}.`);
      return port;
    },
    { what: `a shop on ${framework}`, boundMs: 100_000 },
  );
  return {
    port: port as unknown as number,
    started,
    finish: (order) => void child.send({ finish: order } satisfies ToShop),
    async stop() {
      if (child.exitCode !== null || child.signalCode !== null) return;
      const exited = once(child, "exit");
      child.kill("SIGKILL");
      await exited;
    },
  };
}
