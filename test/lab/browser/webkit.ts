import type { BrowserContext } from "playwright-core";
import { untilShown } from "./shown.ts";
import { Session } from "./web-driver.ts";
import { type Listener, WebKitPage } from "./webkit-page.ts";

/** The pages of a browser, with those methods of Playwright that the tests call. */
class WebKitContext {
  readonly #session: Session;
  readonly #first: string;
  readonly #requests: Listener[];
  readonly #known: Set<string>;
  #pages: WebKitPage[] = [];

  /** @param first stays open: the browser would end with its last window */
  constructor(session: Session, first: string, requests: Listener[]) {
    this.#session = session;
    this.#first = first;
    this.#requests = requests;
    this.#known = new Set([first]);
  }

  async newPage(): Promise<WebKitPage> {
    // A window, since a tab would be behind another one.
    const opened = await this.#session.inTurn(this.#first, () =>
      this.#session.command<{ handle: string }>("POST", "/window/new", { type: "window" }),
    );
    return this.#add(opened.handle);
  }

  /** The next page that a page opens. */
  async waitForEvent(_page: "page"): Promise<WebKitPage> {
    const fresh = async () => {
      const handles = await this.#session.inTurn(this.#first, () =>
        this.#session.command<string[]>("GET", "/window/handles"),
      );
      return handles.find((handle) => !this.#known.has(handle));
    };
    return this.#add(await untilShown(fresh, { what: "a page that a page opens" }));
  }

  pages(): WebKitPage[] {
    this.#pages = this.#pages.filter(({ isClosed }) => !isClosed);
    return this.#pages;
  }

  /** Does nothing: a driver cannot take the network away, and the shop of the tests does so by itself. */
  async setOffline(): Promise<void> {}

  #add(window: string): WebKitPage {
    const page = new WebKitPage(this.#session, window, this.#requests);
    this.#known.add(window);
    this.#pages.push(page);
    return page;
  }
}

/** The options of `startChromium` that this browser has. */
interface WebKitOptions {
  readonly javaScriptEnabled?: boolean;
  readonly keepsPages?: boolean;
  readonly reportsRequests?: boolean;
}

/** Starts the WebKit of Debian's WebKitGTK, which is the engine of Safari, behind Playwright's methods. */
export async function startWebKit({
  javaScriptEnabled = true,
  keepsPages = false,
  reportsRequests = false,
}: WebKitOptions = {}): Promise<{ context: BrowserContext; close(): Promise<void> }> {
  const requests: Listener[] = [];
  const onRequest = (method: string) => {
    for (const listener of requests) listener({ method: () => method });
  };
  const session = await Session.start(
    [
      `--enable-page-cache=${keepsPages}`,
      `--enable-javascript-markup=${javaScriptEnabled}`,
      "--javascript-can-open-windows-automatically=true",
    ],
    reportsRequests ? onRequest : undefined,
  );
  const first = await session.command<string>("GET", "/window");
  const context = new WebKitContext(session, first, requests);
  return { context: context as unknown as BrowserContext, close: () => session.close() };
}
