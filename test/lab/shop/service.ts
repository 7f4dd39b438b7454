import { openClient } from "../../http/http-client.ts";
import { Child } from "../../support/child.ts";
import { compiled } from "../../support/compiled.ts";
import { type Holding, Ledger } from "./ledger.ts";
import { type FromService, now, type Settings, type ToService, type Vitals } from "./protocol.ts";

/** A server process, seen from outside. */
export type Service = Awaited<ReturnType<typeof startService>>;

const script = new URL("./service-process.ts", import.meta.url);

export async function startService(settings: Settings) {
  const program = await compiled({ file: script, withPackages: true });
  const flags = ["--expose-gc"];
  const child = new Child<FromService, ToService>(program, [JSON.stringify(settings)], { flags });
  const name = settings.framework;
  const uncaught: string[] = [];
  const asked: ((vitals: Vitals) => void)[] = [];
  const ledger = new Ledger();
  let port: number | undefined;
  child.onMessage((message) => {
    if ("port" in message) port = message.port;
    else if ("uncaught" in message) uncaught.push(message.uncaught);
    else if ("vitals" in message) asked.shift()?.(message.vitals);
    else if ("begun" in message) {
      const { begun: ownerId, at: from, ...about } = message;
      ledger.begin({ holder: name, ownerId, from, ...about });
    } else if ("ended" in message) {
      const holding = ledger.of(message.ended);
      if (holding === undefined) return;
      ledger.end(holding, message.at, message.lost !== undefined);
      if (message.lost === undefined) holding.isDone = true;
      else holding.reason = message.lost;
    } else if ("believed" in message) {
      for (const [ownerId, until] of message.believed) {
        const holding = ledger.of(ownerId);
        if (holding !== undefined) holding.believedUntil = until;
      }
    }
  });
  void child.exit.then(() => {
    // Whoever died does not work any more.
    for (const holding of ledger.holdings) ledger.end(holding, now());
  });
  while (port === undefined) {
    await child.next();
    if (uncaught.length === 0) continue;
    await child.kill();
    throw new Error(`a service did not start: ${uncaught}`);
  }
  const client = openClient(1, port);
  return {
    name,
    client,
    /** The times in which a handler ran and had not been told that its lease is lost. */
    get holdings(): readonly Holding[] {
      return ledger.holdings;
    },
    /** Rejections and exceptions that were not caught. */
    uncaught,
    /** The code and signal it ended with. */
    exit: child.exit,
    vitals() {
      const vitals = new Promise<Vitals>((resolve) => asked.push(resolve));
      child.send({ ask: "vitals" });
      return vitals;
    },
    /** Forgets the holdings that are over. */
    forget: () => ledger.forget(),
    /** SIGTERM: it drains. */
    terminate: () => child.signal("SIGTERM"),
    pause: () => child.signal("SIGSTOP"),
    resume: () => child.signal("SIGCONT"),
    async kill() {
      client.close();
      await child.kill();
    },
  };
}
