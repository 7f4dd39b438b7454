import { once } from "node:events";
import { existsSync } from "node:fs";
import { createServer, request, type Server } from "node:http";
import type { AddressInfo } from "node:net";
import { delimiter, join } from "node:path";
import { Program } from "../../support/child.ts";
import { freePort, giveBack } from "../../support/free-port.ts";
import { installOnDebian } from "../../support/server-binary.ts";
import { boundMs } from "./shown.ts";

const DRIVER = "WebKitWebDriver";
const ADVICE = `TEST_BROWSER=webkit needs ${DRIVER} and Xvfb, and there are not both of them on the PATH.
  Debian, Ubuntu  sudo apt-get install webkit2gtk-driver xvfb   (as root the tests do this by themselves)`;

function needPrograms(): void {
  const folders = (process.env["PATH"] ?? "").split(delimiter);
  const areThere = () =>
    [DRIVER, "Xvfb"].every((name) => folders.some((folder) => existsSync(join(folder, name))));
  if (areThere()) return;
  if (!installOnDebian("webkit2gtk-driver xvfb") || !areThere()) throw new Error(ADVICE);
}

/** Passes requests on and reports the method of each one. The driver itself reports none. */
async function startProxy(onRequest: (method: string) => void): Promise<Server> {
  const server = createServer((req, res) => {
    const { method = "", url = "", headers } = req;
    onRequest(method);
    const onward = request(url, { method, headers }, (answer) => {
      res.writeHead(answer.statusCode as number, answer.headers);
      answer.pipe(res);
    });
    onward.once("error", () => res.destroy());
    res.once("close", () => onward.destroy());
    req.pipe(onward);
  });
  server.listen(0, "127.0.0.1");
  await once(server, "listening");
  return server;
}

async function send<T>(method: string, url: string, body: object, limitMs: number): Promise<T> {
  const response = await fetch(url, {
    method,
    // A driver that hangs answers the next command.
    signal: AbortSignal.timeout(limitMs),
    ...(method === "POST" && { body: JSON.stringify(body) }),
  });
  const { value } = (await response.json()) as { value: { error?: string; message?: string } };
  if (response.ok) return value as T;
  throw new Error(`${method} ${url}: ${value.error}: ${value.message}`);
}

/** A browser of its own under WebKitWebDriver. */
export class Session {
  readonly #url: string;
  readonly close: () => Promise<void>;
  #window: string | undefined;
  #last: Promise<unknown> = Promise.resolve();

  private constructor(url: string, close: () => Promise<void>) {
    this.#url = url;
    this.close = close;
  }

  /**
   * @param args of the browser
   * @param onRequest is called with the method of each request
   */
  static async start(
    args: readonly string[],
    onRequest?: (method: string) => void,
  ): Promise<Session> {
    needPrograms();
    const proxy = onRequest && (await startProxy(onRequest));
    // A screen of its own also ends a browser that the driver has left behind.
    const screen = new Program("Xvfb", ["-displayfd", "1", "-screen", "0", "1280x900x24"]);
    const [, display] = await screen.prints(/^(\d+)\n/m);
    const port = await freePort();
    const driver = new Program(DRIVER, [`--port=${port}`], {
      env: {
        ...process.env,
        DISPLAY: `:${display}`,
        WEBKIT_DISABLE_SANDBOX_THIS_IS_DANGEROUS: "1",
        WEBKIT_DISABLE_COMPOSITING_MODE: "1",
        LIBGL_ALWAYS_SOFTWARE: "1",
        NO_AT_BRIDGE: "1",
      },
    });
    const address = `http://127.0.0.1:${port}`;
    const isReady = () => send("GET", `${address}/status`, {}, 5_000).catch(() => undefined);
    await driver.until(isReady, "to be ready");
    const proxyPort = (proxy?.address() as AddressInfo | undefined)?.port;
    const alwaysMatch = {
      // Other strategies hold commands back during a navigation, and sometimes forever.
      pageLoadStrategy: "none",
      "webkitgtk:browserOptions": { args: ["--automation", ...args] },
      ...(proxy && { proxy: { proxyType: "manual", httpProxy: `127.0.0.1:${proxyPort}` } }),
    };
    const body = { capabilities: { alwaysMatch } };
    const { sessionId } = await send<{ sessionId: string }>(
      "POST",
      `${address}/session`,
      body,
      boundMs,
    );
    const url = `${address}/session/${sessionId}`;
    await send("POST", `${url}/timeouts`, { script: boundMs, pageLoad: boundMs }, boundMs);
    return new Session(url, async () => {
      await send("DELETE", url, {}, 5_000).catch(() => {});
      for (const program of [driver, screen]) {
        program.kill("SIGTERM");
        await program.ended;
      }
      giveBack(port);
      proxy?.close();
      proxy?.closeAllConnections();
    });
  }

  /** Sends one command. Call it within `inTurn`. */
  command<T>(method: string, path: string, body: object = {}, limitMs = 60_000): Promise<T> {
    return send<T>(method, `${this.#url}${path}`, body, limitMs);
  }

  /** Runs steps in a window, one caller at a time: all windows share one queue of commands. */
  inTurn<T>(window: string, steps: () => Promise<T>): Promise<T> {
    const turn = this.#last.then(async () => {
      try {
        if (this.#window !== window) await this.command("POST", "/window", { handle: window });
        this.#window = window;
        return await steps();
      } catch (error) {
        // After an error the driver may be in another window.
        this.#window = undefined;
        throw error;
      }
    });
    this.#last = turn.catch(() => {});
    return turn;
  }
}
