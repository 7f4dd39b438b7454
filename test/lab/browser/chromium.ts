import { existsSync, mkdirSync, mkdtempSync, rmSync, writeFileSync } from "node:fs";
import { tmpdir } from "node:os";
import { delimiter, join } from "node:path";
import { type BrowserContext, chromium } from "playwright-core";
import { runExample } from "../../docs/examples/run-example.ts";
import { installOnDebian } from "../../support/server-binary.ts";
import { boundMs } from "./shown.ts";
import { startWebKit } from "./webkit.ts";

const NAMES = ["chromium", "chromium-browser", "google-chrome", "google-chrome-stable"];
const ADVICE = `The page is tested in a real Chromium, and there is none on the PATH.
  Debian          sudo apt-get install chromium   (as root the tests do this by themselves)
  elsewhere       CHROMIUM_BIN=/path/to/chromium npm run test:browser`;

/** `CHROMIUM_BIN`, else the first one on the PATH, else, on Debian as root, one that is installed now. */
function chromiumBinary(env: NodeJS.ProcessEnv = process.env): string {
  const named = env["CHROMIUM_BIN"];
  if (named) {
    if (existsSync(named)) return named;
    throw new Error(`CHROMIUM_BIN names ${named}, and there is no such file.`);
  }
  const found = onPath(env) ?? (installOnDebian("chromium") ? onPath(env) : undefined);
  if (found === undefined) throw new Error(ADVICE);
  return found;
}

function onPath(env: NodeJS.ProcessEnv): string | undefined {
  const folders = (env["PATH"] ?? "").split(delimiter).filter(Boolean);
  return NAMES.flatMap((name) => folders.map((folder) => join(folder, name))).find(existsSync);
}

const named = process.env["TEST_BROWSER"] ?? "chromium";
if (!/^(chromium|webkit)$/.test(named)) {
  throw new Error(`TEST_BROWSER is "${named}". Set it to "chromium" or "webkit".`);
}
/** `TEST_BROWSER=webkit` runs the tests in WebKit. */
export const isWebKit = named === "webkit";

interface BrowserOptions {
  readonly colorScheme?: "light" | "dark";
  readonly viewport?: { readonly width: number; readonly height: number };
  readonly javaScriptEnabled?: boolean;
  /** Pages have neither cookies nor storage, as where a customer has blocked both. */
  readonly refusesStorage?: boolean;
  /** Back shows the page that was left, as with every customer. A driver turns this off. */
  readonly keepsPages?: boolean;
  /** Pages have their event `request`. WebKit needs a proxy for it. */
  readonly reportsRequests?: boolean;
}

/** A browser with a profile of its own, which `close` removes; WebKit if `TEST_BROWSER` says so. */
export async function startChromium(
  given: BrowserOptions = {},
): Promise<{ context: BrowserContext; close(): Promise<void> }> {
  if (isWebKit) return await startWebKit(given);
  const { refusesStorage, keepsPages, reportsRequests: _, ...options } = given;
  const profile = mkdtempSync(join(tmpdir(), "submit-lock-chromium-"));
  if (refusesStorage) {
    const blocked = { profile: { default_content_setting_values: { cookies: 2 } } };
    mkdirSync(join(profile, "Default"));
    writeFileSync(join(profile, "Default/Preferences"), JSON.stringify(blocked));
  }
  const context = await chromium.launchPersistentContext(profile, {
    executablePath: chromiumBinary(),
    headless: true,
    ...(keepsPages && { ignoreDefaultArgs: ["--disable-back-forward-cache"] }),
    // It ends when its pipe does, and listeners of its own would keep a signal from this process.
    handleSIGINT: false,
    handleSIGTERM: false,
    handleSIGHUP: false,
    args: [
      "--headless",
      "--no-sandbox",
      "--disable-gpu",
      "--disable-quic",
      "--no-first-run",
      "--disable-background-networking",
      "--disable-component-update",
      "--disable-sync",
    ],
    ...options,
  });
  context.setDefaultTimeout(boundMs);
  return {
    context,
    async close() {
      await context.close();
      rmSync(profile, { recursive: true, force: true });
    },
  };
}

/** `npm run demo`, without npm: what is ended is then the demo itself. */
export interface RunningDemo {
  readonly url: string;
  output(): string;
  end(): Promise<number | string>;
}

/** @param env what is set beside the environment of this process. */
export async function startDemo(file: string, env: NodeJS.ProcessEnv = {}): Promise<RunningDemo> {
  const demo = runExample(file, { env: { PORT: "0", ...env } });
  const [, url = ""] = await demo.prints(/(http:\/\/127\.0\.0\.1:\d+)\n[\s\S]*it is your turn/);
  return {
    url,
    output: () => demo.output(),
    async end() {
      demo.kill("SIGTERM");
      return await demo.ended;
    },
  };
}
