import { fork } from "node:child_process";
import { once } from "node:events";
import { fileURLToPath } from "node:url";
import type { LostReason } from "../../../src/index.ts";
import { atExit } from "../../support/at-exit.ts";
import { until } from "../../support/until.ts";
import { type Holding, Ledger } from "../ledger.ts";
import type { FromHolder, HolderSettings } from "./protocol.ts";

/** A process that holds locks, seen from outside. */
export interface Holder {
  readonly pid: number;
  /** Each until its holder was told, or until it believed to hold when it was heard of last. */
  holdings(): readonly Holding[];
  /** What the holder of this owner id was told, and when. */
  told(ownerId: string): { readonly reason: LostReason; readonly at: number } | undefined;
  kill(): Promise<void>;
}

const running = new Set<() => void>();
atExit(() => {
  for (const kill of running) kill();
});

/** Resolves when it holds the locks of all its users. */
export async function startHolder(name: string, settings: HolderSettings): Promise<Holder> {
  const script = fileURLToPath(new URL("./holder-process.ts", import.meta.url));
  const child = fork(script, [JSON.stringify(settings)], {
    execArgv: ["--import", "tsx"],
    stdio: ["ignore", "ignore", "pipe", "ipc"],
  });
  const killNow = () => void child.kill("SIGKILL");
  running.add(killNow);
  const exited = once(child, "exit").then(() => running.delete(killNow));
  const ledger = new Ledger();
  const told = new Map<string, { reason: LostReason; at: number }>();
  const believed = new Map<string, number>();
  let said = "";
  child.stderr?.on("data", (chunk: Buffer) => {
    if (said.length < 20_000) said += chunk.toString();
  });
  child.on("message", (message: FromHolder) => {
    if ("begun" in message) {
      const { begun: ownerId, user, at: from } = message;
      ledger.begin({ holder: name, user, ownerId, from });
    } else if ("told" in message) {
      told.set(message.told, { reason: message.reason, at: message.at });
    } else for (const [ownerId, at] of message.believed) believed.set(ownerId, at);
  });
  await until(
    () => {
      if (child.exitCode !== null) throw new Error(`The holder ended at once:\n${said}`);
      return believed.size === settings.users.length;
    },
    { what: `the ${name} holder`, boundMs: 60_000 },
  );
  return {
    pid: child.pid as number,
    holdings: () => {
      for (const holding of ledger.holdings) {
        const { ownerId } = holding;
        const believedUntil = believed.get(ownerId) ?? Number.POSITIVE_INFINITY;
        ledger.end(holding, Math.min(told.get(ownerId)?.at ?? believedUntil, believedUntil));
      }
      return ledger.holdings;
    },
    told: (ownerId) => told.get(ownerId),
    async kill() {
      if (child.exitCode === null && child.signalCode === null) killNow();
      await exited;
    },
  };
}
