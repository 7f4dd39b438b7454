import { type HttpClient, openClient } from "../../http/http-client.ts";
import { Child } from "../../support/child.ts";
import { type Holding, Ledger } from "../ledger.ts";
import { type FromService, now, type Settings, type ToService, type Vitals } from "./protocol.ts";

/** A server process, seen from outside. */
export interface Service {
  readonly name: string;
  readonly pid: number;
  readonly port: number;
  readonly client: HttpClient;
  /** The times in which a handler ran and had not been told that its lease is lost. */
  readonly holdings: readonly Holding[];
  /** Rejections and exceptions that nobody caught. */
  readonly uncaught: readonly string[];
  readonly ended: boolean;
  /** The code and signal it ended with. */
  readonly exit: Promise<{ code: number | null; signal: NodeJS.Signals | null }>;
  vitals(): Promise<Vitals>;
  /** Forgets the holdings that are over. */
  forget(): void;
  /** SIGTERM: it drains. */
  terminate(): void;
  /** SIGKILL. */
  kill(): Promise<void>;
}

export async function startService(settings: Settings): Promise<Service> {
  const script = new URL("./service-process.ts", import.meta.url);
  const flags = ["--expose-gc"];
  const child = new Child<FromService, ToService>(script, [JSON.stringify(settings)], { flags });
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
      const { begun: ownerId, user, fencingToken, at: from } = message;
      ledger.begin({ holder: name, user, ownerId, fencingToken, from });
    } else if ("ended" in message) {
      const holding = ledger.of(message.ended);
      if (holding !== undefined) ledger.end(holding, message.at, message.lost);
    }
  });
  void child.exit.then(() => {
    // Whoever died does not work any more.
    for (const holding of ledger.holdings) ledger.end(holding, now());
  });
  while (port === undefined) await child.next();
  const client = openClient(1, port);
  return {
    name,
    pid: child.pid,
    port,
    client,
    get holdings() {
      return ledger.holdings;
    },
    uncaught,
    get ended() {
      return child.hasEnded;
    },
    exit: child.exit,
    vitals() {
      const vitals = new Promise<Vitals>((resolve) => asked.push(resolve));
      child.send({ ask: "vitals" });
      return vitals;
    },
    forget: () => ledger.forget(),
    terminate: () => child.signal("SIGTERM"),
    async kill() {
      client.close();
      await child.kill();
    },
  };
}
