import { fork } from "node:child_process";
import { once } from "node:events";
import { fileURLToPath } from "node:url";
import { type HttpClient, openClient } from "../../http/http-client.ts";
import { atExit } from "../../support/at-exit.ts";
import { until } from "../../support/until.ts";
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

const running = new Set<() => void>();
atExit(() => {
  for (const kill of running) kill();
});

export async function startService(settings: Settings): Promise<Service> {
  const script = fileURLToPath(new URL("./service-process.ts", import.meta.url));
  const child = fork(script, [JSON.stringify(settings)], {
    execArgv: ["--import", "tsx", "--expose-gc"],
    stdio: ["ignore", "ignore", "pipe", "ipc"],
  });
  const killNow = () => void child.kill("SIGKILL");
  running.add(killNow);
  const name = settings.framework;
  const uncaught: string[] = [];
  const asked: ((vitals: Vitals) => void)[] = [];
  const ledger = new Ledger();
  let port: number | undefined;
  let ended = false;
  let said = "";
  child.stderr?.on("data", (chunk: Buffer) => {
    if (said.length < 20_000) said += chunk.toString();
  });
  child.on("message", (message: FromService) => {
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
  const exit: Service["exit"] = once(child, "exit").then(([code, signal]) => {
    ended = true;
    running.delete(killNow);
    // Whoever died does not work any more.
    for (const holding of ledger.holdings) ledger.end(holding, now());
    return { code, signal };
  });
  await until(
    () => {
      if (ended) throw new Error(`The service ended at once:\n${said}`);
      return port;
    },
    { what: `a service on ${name}`, boundMs: 40_000 },
  );
  const client = openClient(1, port as unknown as number);
  return {
    name,
    pid: child.pid as number,
    port: port as unknown as number,
    client,
    get holdings() {
      return ledger.holdings;
    },
    uncaught,
    get ended() {
      return ended;
    },
    exit,
    vitals() {
      const vitals = new Promise<Vitals>((resolve) => asked.push(resolve));
      child.send({ ask: "vitals" } satisfies ToService);
      return vitals;
    },
    forget: () => ledger.forget(),
    terminate: () => void child.kill("SIGTERM"),
    async kill() {
      client.close();
      if (!ended) killNow();
      await exit;
    },
  };
}
