import { parseArgs } from "node:util";
import { runLaboratory } from "../laboratory.ts";
import { parts } from "./parts.ts";
import { playOrders } from "./ten-million.ts";

/**
 * `npm run lab -- capacity`: 100,000 orders through `lock.once`, a tenth of them again through
 * Express, with trouble all the time, and a ledger that is checked to the last order.
 * `--orders 10000000` has a fault every minute; `--part NAME` measures instead.
 */
export async function run(): Promise<void> {
  const { values } = parseArgs({
    options: {
      orders: { type: "string", default: "100000" },
      seed: { type: "string", default: `${Math.floor(Math.random() * 2 ** 31)}` },
      minutes: { type: "string", default: "300" },
      by: { type: "string" },
      part: { type: "string" },
    },
  });
  const [orders, seed] = [Number(values.orders), Number(values.seed)];
  if (values.part !== undefined) {
    const part = parts[values.part];
    if (part === undefined) throw new Error(`--part: ${Object.keys(parts).join(", ")}`);
    return await part();
  }
  const isLong = orders >= 1_000_000;
  const common = isLong
    ? { seed, faultEveryMs: 60_000, mostFaults: Number.POSITIVE_INFINITY, retainMs: 60_000 }
    : { seed, faultEveryMs: 4_000, mostFaults: 4, retainMs: 30_000 };
  await runLaboratory(`${orders} orders, --seed ${seed}`, async () => {
    const played: Promise<readonly string[]>[] = [];
    for (const by of ["lock", "express"] as const) {
      if (values.by !== undefined && values.by !== by) continue;
      const count = by === "lock" ? orders : orders / 10;
      // Bounded, both are stretched, so that each fault is in it however fast the machine is.
      const mostPerSecond = isLong ? Number.POSITIVE_INFINITY : count / 20;
      const mostMs = 60_000 * Number(values.minutes);
      played.push(playOrders({ ...common, orders: count, by, mostMs, mostPerSecond }));
      if (isLong) await played.at(-1);
    }
    return (await Promise.all(played)).flat();
  });
}
