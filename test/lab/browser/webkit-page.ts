import { setTimeout as sleep } from "node:timers/promises";
import { boundMs, untilShown } from "./shown.ts";
import type { Session } from "./web-driver.ts";

/**
 * Begins each script that runs in a page: finds `all` elements of a selector, and the first one.
 * `text=…` and `:text('…')` find the innermost elements with that text.
 */
const FIND = String.raw`const [selector, ...given] = arguments;
  const [, within, words] = /^(.* )?(?:text=|:text\(')(.*?)(?:'\))?$/.exec(selector) ?? [];
  const shows = (each) => !/^(SCRIPT|STYLE)$/.test(each.tagName) &&
    each.textContent.toLowerCase().includes(words.toLowerCase());
  const all = words === undefined ? [...document.querySelectorAll(selector)]
    : [...document.querySelectorAll(within ? within + "*" : "body, body *")]
      .filter((each) => shows(each) && ![...each.children].some(shows));
  const [element] = all;
  const isVisible = element?.getClientRects().length > 0;`;

/**
 * Returns the uncaught errors of the page since the last script. The first script begins to listen,
 * so an error while the document is parsed may be missed.
 */
const ERRORS = `(() => {
  if (globalThis.uncaught === undefined) {
    Object.defineProperty(globalThis, "uncaught", { value: [] });
    addEventListener("error", ({ message }) => message && uncaught.push(message));
    addEventListener("unhandledrejection", ({ reason }) => uncaught.push(String(reason)));
  }
  return uncaught.splice(0);
})()`;

/** Replaces the timers of a page by those that `runFor` runs. */
const CLOCK = `{
  let now = 0;
  let next = 1;
  const timers = new Map();
  globalThis.setTimeout = (run, ms = 0, ...args) => {
    timers.set(next, { at: now + Number(ms), run: () => run(...args) });
    return next++;
  };
  globalThis.clearTimeout = (id) => void timers.delete(id);
  globalThis.runFor = (ms) => {
    const end = now + ms;
    for (;;) {
      const due = [...timers].filter(([, { at }]) => at <= end);
      const [first] = due.sort(([, one], [, other]) => one.at - other.at);
      if (first === undefined) break;
      timers.delete(first[0]);
      now = first[1].at;
      first[1].run();
    }
    now = end;
  };
}`;

const KEYS: Record<string, string> = { Enter: "\uE007", Tab: "\uE004" };

/** A document that is being replaced refuses scripts for a moment. A browser that ended stays away. */
function passing(error: Error): undefined {
  const cause = String(error.cause);
  if (/no such window|invalid session|ECONN/.test(`${error.message} ${cause}`)) throw error;
}

type Box = Readonly<Record<"x" | "y" | "width" | "height", number>>;

interface ClickOptions {
  readonly position?: { readonly x: number; readonly y: number };
  readonly clickCount?: number;
  readonly delay?: number;
}

export type Listener = (event: unknown) => void;

/** A page with those methods of Playwright that the tests call. */
export class WebKitPage {
  readonly #session: Session;
  readonly #window: string;
  readonly #requests: Listener[];
  readonly #onError: Listener[] = [];
  isClosed = false;
  #url = "";
  #navigations = 0;

  /** @param requests get the listeners that are called with each request of the browser */
  constructor(session: Session, window: string, requests: Listener[]) {
    this.#session = session;
    this.#window = window;
    this.#requests = requests;
  }

  on(name: string, listener: Listener): void {
    if (name === "pageerror") this.#onError.push(listener);
    if (name === "request") this.#requests.push(listener);
  }

  async goto(url: string): Promise<void> {
    await this.#navigates("/url", { url });
  }
  async reload(): Promise<void> {
    await this.#navigates("/refresh");
  }
  async goBack(): Promise<void> {
    await this.#navigates("/back");
  }

  /** The address as of the last look. Each call looks again. */
  url(): string {
    this.#address().catch(() => {});
    return this.#url;
  }
  async waitForURL(sought: string | RegExp): Promise<void> {
    const isThere = async () => {
      const url = (await this.#address().catch(passing)) ?? "";
      return typeof sought === "string" ? url === sought : sought.test(url);
    };
    await untilShown(isThere, { what: `the address ${sought}` });
  }
  async waitForSelector(selector: string, { state = "visible" } = {}): Promise<void> {
    await this.#of(selector, "true", state === "visible" ? "isVisible" : "element");
  }
  async waitForFunction(code: string): Promise<void> {
    await this.#of("html", "true", `(0, eval)(${JSON.stringify(code)})`);
  }
  waitForTimeout(ms: number): Promise<void> {
    return sleep(ms);
  }

  textContent(selector: string): Promise<string> {
    return this.#of(selector, "element.textContent");
  }
  inputValue(selector: string): Promise<string> {
    return this.#of(selector, "element.value");
  }
  isChecked(selector: string): Promise<boolean> {
    return this.#of(selector, "element.checked");
  }
  isDisabled(selector: string): Promise<boolean> {
    return this.#of(selector, "element.disabled");
  }
  isEnabled(selector: string): Promise<boolean> {
    return this.#of(selector, "!element.disabled");
  }
  isVisible(selector: string): Promise<boolean> {
    return this.#of(selector, "isVisible", "true");
  }
  getAttribute(selector: string, name: string): Promise<string | null> {
    return this.#of(selector, `element.getAttribute(${JSON.stringify(name)})`);
  }
  content(): Promise<string> {
    return this.#of("html", "element.outerHTML");
  }
  locator(selector: string) {
    return {
      waitFor: () => this.waitForSelector(selector),
      textContent: () => this.textContent(selector),
      count: () => this.#of<number>(selector, "all.length", "true"),
      allTextContents: () =>
        this.#of<string[]>(selector, "all.map((each) => each.textContent)", "true"),
      boundingBox: () => this.#of<Box>(selector, "element.getBoundingClientRect().toJSON()"),
    };
  }
  getByText(text: string) {
    return this.locator(`text=${text}`);
  }

  async click(selector: string, options: ClickOptions = {}): Promise<void> {
    const clicks = () => this.#inTurn(() => this.#clicks(selector, options));
    await untilShown(clicks, { what: `${selector} to be clickable` });
  }
  dblclick(selector: string, options: ClickOptions = {}): Promise<void> {
    return this.click(selector, { ...options, clickCount: 2 });
  }
  check(selector: string): Promise<void> {
    return this.click(selector);
  }
  async dispatchEvent(selector: string, type: string): Promise<void> {
    const init = "{ bubbles: true, cancelable: true, composed: true }";
    await this.#act(selector, `element.dispatchEvent(new MouseEvent(given[0], ${init}))`, type);
  }
  async focus(selector: string): Promise<void> {
    await this.#act(selector, "element.focus()");
  }
  async fill(selector: string, value: string): Promise<void> {
    const tell = '["input", "change"].map((type) => new Event(type, { bubbles: true }))';
    await this.#act(
      selector,
      `element.focus(); element.value = given[0]; ${tell}.forEach((event) => element.dispatchEvent(event))`,
      value,
    );
  }
  readonly mouse = {
    click: (x: number, y: number) => this.#inTurn(() => this.#clicksAt(x, y)),
  };
  readonly keyboard = {
    press: (key: string) =>
      this.#inTurn(async () => {
        const steps = ["keyDown", "keyUp"].map((type) => ({ type, value: KEYS[key] }));
        await this.#session.command("POST", "/actions", {
          actions: [{ type: "key", id: "keyboard", actions: steps }],
        });
      }),
  };
  readonly clock = {
    install: () => this.evaluate(CLOCK),
    runFor: (ms: number) => this.evaluate(`runFor(${ms})`),
  };
  readonly request = { get: fetch };

  /** Runs code in an element, since WebKit runs microtasks behind each listener below a driver's script. */
  async evaluate(code: string): Promise<unknown> {
    const source = `try { globalThis.evaluated = { value: (0, eval)(${JSON.stringify(code)}) } }
      catch (error) { globalThis.evaluated = { error } }`;
    const script = `const [source, done] = arguments;
      const element = document.createElement("script");
      element.textContent = source;
      document.documentElement.append(element);
      element.remove();
      const { value, error } = evaluated;
      delete globalThis.evaluated;
      const plain = (value) => {
        try { return JSON.parse(JSON.stringify(value)); } catch { return null; }
      };
      if (error) done({ error: String(error) });
      else Promise.resolve(value).then(
        (value) => done({ value: plain(value) }),
        (error) => done({ error: String(error) }),
      );`;
    const { value, error } = await this.#inTurn(() =>
      this.#session.command<{ value?: unknown; error?: string }>(
        "POST",
        "/execute/async",
        { script, args: [source] },
        boundMs,
      ),
    );
    if (error !== undefined) throw new Error(error);
    return value;
  }
  async addScriptTag({ content }: { content: string }): Promise<void> {
    await this.evaluate(`${content};0`);
  }
  /** Answers the `fetch` calls of this document. A driver cannot answer requests. */
  async route(
    pattern: string,
    answer: (route: {
      fulfill(given: { status: number; contentType: string; body: string }): Promise<unknown>;
    }) => Promise<unknown>,
  ): Promise<void> {
    await answer({
      fulfill: ({ status, contentType, body }) =>
        this.evaluate(`{
          const { fetch } = globalThis;
          globalThis.fetch = async (input, init) => {
            const url = String(input.url ?? input);
            if (!url.endsWith(${JSON.stringify(pattern.replace(/^\*+/, ""))})) return fetch(input, init);
            const headers = { "content-type": ${JSON.stringify(contentType)} };
            const answer = new Response(${JSON.stringify(body)}, { status: ${status}, headers });
            return Object.defineProperty(answer, "url", { value: url });
          };
        }`),
    });
  }
  async close(): Promise<void> {
    this.isClosed = true;
    // The errors of the last steps.
    await this.#run("return 0").catch(() => {});
    await this.#inTurn(() => this.#session.command("DELETE", "/window")).catch(() => {});
  }

  #inTurn<T>(steps: () => Promise<T>): Promise<T> {
    return this.#session.inTurn(this.#window, steps);
  }

  /** Runs the body of a function in the page. A script that hangs is asked again soon by its caller. */
  #run<T>(body: string, selector = "html", ...given: unknown[]): Promise<T> {
    return this.#inTurn(() => this.#runs<T>(body, selector, ...given));
  }
  async #runs<T>(body: string, ...args: unknown[]): Promise<T> {
    const script = `const errors = ${ERRORS};
      return { value: (function () { ${FIND} ${body} }).apply(undefined, arguments), errors };`;
    const { value, errors } = await this.#session.command<{ value: T; errors: string[] }>(
      "POST",
      "/execute/sync",
      { script, args },
      4_000,
    );
    for (const error of errors) for (const listener of this.#onError) listener(new Error(error));
    return value;
  }

  /** Reads something once the condition is true, by default that there is the element. */
  async #of<T>(selector: string, expression: string, condition = "element"): Promise<T> {
    const body = `return ${condition} ? { value: ${expression} } : null`;
    const read = () => this.#run<{ value: T } | null>(body, selector).catch(passing);
    return (await untilShown(read, { what: `the element ${selector}` })).value;
  }
  /** Waits for the element, and does something with it once. */
  async #act(selector: string, body: string, ...given: unknown[]): Promise<void> {
    await this.#of(selector, "true");
    await this.#run(body, selector, ...given);
  }

  async #address(): Promise<string> {
    this.#url = await this.#run<string>("return location.href");
    return this.#url;
  }

  async #navigates(path: string, body: object = {}): Promise<void> {
    const mark = ++this.#navigations;
    const before = await this.#of<string>("html", `(document.leftBy = ${mark}, location.href)`);
    await this.#inTurn(async () => {
      await this.#session.command("POST", path, body);
      // A script at once behind a step back makes the driver hang now and then.
      if (path === "/back") await sleep(250);
    });
    // A router goes back within the document.
    const isRouted = path === "/back" ? `location.href !== ${JSON.stringify(before)}` : "false";
    const isLoaded = `(document.leftBy !== ${mark} || ${isRouted}) && document.readyState === "complete"`;
    this.#url = await this.#of("html", "location.href", isLoaded);
  }

  async #clicks(selector: string, { position, clickCount, delay }: ClickOptions): Promise<boolean> {
    const body = `if (!isVisible || element.disabled) return null;
      element.scrollIntoView({ block: "nearest" });
      return element.getBoundingClientRect().toJSON()`;
    const box = await this.#runs<Box | null>(body, selector).catch(passing);
    if (!box) return false;
    const { x, y } = position ?? { x: box.width / 2, y: box.height / 2 };
    await this.#clicksAt(box.x + x, box.y + y, clickCount, delay);
    return true;
  }
  async #clicksAt(x: number, y: number, clickCount = 1, delay = 0): Promise<void> {
    const pause = { type: "pause", duration: delay };
    const button = { button: 0 };
    const click = [{ type: "pointerDown", ...button }, pause, { type: "pointerUp", ...button }];
    const move = { type: "pointerMove", duration: 0, x: Math.round(x), y: Math.round(y) };
    const actions = [move, ...Array.from({ length: clickCount }, () => [...click, pause]).flat()];
    await this.#session.command("POST", "/actions", {
      actions: [{ type: "pointer", id: "mouse", parameters: { pointerType: "mouse" }, actions }],
    });
  }
}
