import type { LostReason } from "../../../src/index.ts";
import { Child } from "../../support/child.ts";
import { until } from "../../support/until.ts";
import { type Holding, Ledger } from "../ledger.ts";
import type { FromHolder, HolderSettings } from "./holder-process.ts";

/** A process that holds locks, seen from outside. */
export interface Holder {
  readonly pid: number;
  /** Each until its holder was told, or until it believed to hold when it was heard of last. */
  holdings(): readonly Holding[];
  /** What the holder of this owner id was told, and when. */
  told(ownerId: string): { readonly reason: LostReason; readonly at: number } | undefined;
  kill(): Promise<void>;
}

/** Resolves when it holds the locks of all its users. */
export async function startHolder(name: string, settings: HolderSettings): Promise<Holder> {
  const script = new URL("./holder-process.ts", import.meta.url);
  const child = new Child<FromHolder>(script, [JSON.stringify(settings)]);
  const ledger = new Ledger();
  const told = new Map<string, { reason: LostReason; at: number }>();
  const believed = new Map<string, number>();
  child.onMessage((message) => {
    if ("begun" in message) {
      const { begun: ownerId, user, at: from } = message;
      ledger.begin({ holder: name, user, ownerId, from });
    } else if ("told" in message) {
      told.set(message.told, { reason: message.reason, at: message.at });
    } else for (const [ownerId, at] of message.believed) believed.set(ownerId, at);
  });
  await child.next();
  const holdsAll = () => believed.size === settings.users.length;
  await until(holdsAll, { what: `the ${name} holder`, boundMs: 60_000 });
  return {
    pid: child.pid,
    holdings: () => {
      for (const holding of ledger.holdings) {
        const { ownerId } = holding;
        const believedUntil = believed.get(ownerId) ?? Number.POSITIVE_INFINITY;
        ledger.end(holding, Math.min(told.get(ownerId)?.at ?? believedUntil, believedUntil));
      }
      return ledger.holdings;
    },
    told: (ownerId) => told.get(ownerId),
    kill: () => child.kill(),
  };
}
