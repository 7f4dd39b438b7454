import { Child } from "../support/child.ts";
import { compiled } from "../support/compiled.ts";
import type { FromShop, ToShop } from "./shop-process.ts";

/** A server process, seen from outside. */
export interface ShopProcess {
  readonly port: number;
  /** Every order whose handler has begun, and how many of its user's were running then. */
  readonly started: Extract<FromShop, { started: string }>[];
  finish(order: string): void;
  /** SIGKILL. */
  stop(): Promise<void>;
}

const file = new URL("./shop-process.ts", import.meta.url);

export async function startShopProcess(
  framework: string,
  redisPort: number,
  ttlMs?: number,
): Promise<ShopProcess> {
  const args = [framework, `${redisPort}`, ...(ttlMs === undefined ? [] : [`${ttlMs}`])];
  const child = new Child<FromShop, ToShop>(await compiled({ file }), args);
  const started: ShopProcess["started"] = [];
  child.onMessage((message) => {
    if ("started" in message) started.push(message);
  });
  const { port } = (await child.next()) as { port: number };
  return {
    port,
    started,
    finish: (order) => child.send({ finish: order }),
    stop: () => child.kill(),
  };
}
