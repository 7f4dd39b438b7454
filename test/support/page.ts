import { fileURLToPath } from "node:url";
import { type BuildOptions, build, buildSync } from "esbuild";
import { instead } from "./compiled.ts";

/** Everything that `submit-lock/browser` exports. */
export type BrowserModule = typeof import("../../src/browser/index.ts");

const entry = fileURLToPath(new URL("../../src/browser/index.ts", import.meta.url));

const optionsOf = (format: "esm" | "iife") =>
  ({
    entryPoints: [entry],
    bundle: true,
    minify: true,
    write: false,
    target: "es2022",
    format,
    globalName: "submitLock",
  }) satisfies BuildOptions;

/** What a bundler makes of `submit-lock/browser`. */
export function bundled(format: "esm" | "iife" = "esm"): string {
  return buildSync(optionsOf(format)).outputFiles[0]?.text ?? "";
}

let script: string | undefined;

/** From here on, pages have these texts in place of those of these files. */
export async function breakPages(texts: ReadonlyMap<string, string>): Promise<void> {
  const { outputFiles } = await build({ ...optionsOf("iife"), plugins: [instead(texts)] });
  script = outputFiles[0]?.text;
}

/** The `sessionStorage` of a tab. */
export class TabStorage {
  readonly items: Map<string, string>;

  /** @param items of the tab that was duplicated */
  constructor(items: Iterable<readonly [string, string]> = []) {
    this.items = new Map(items);
  }

  getItem(key: string): string | null {
    return this.items.get(key) ?? null;
  }

  setItem(key: string, value: string): void {
    this.items.set(key, value);
  }

  removeItem(key: string): void {
    this.items.delete(key);
  }
}

interface PageOptions {
  /** Shared by the pages of a tab, one after the other. Absent: there is none, as in Node. */
  readonly storage?: object | undefined;
  /** Beside `sessionStorage`, such as `crypto`. */
  readonly globals?: object;
  /** How much faster than others this page's waits are. @defaultValue 1 */
  readonly speed?: number;
}

/**
 * A page without a browser: the bundle of `submit-lock/browser` in an instance of its own, as every
 * load of a page makes one. `close` ends it as a reload does: its requests are aborted, its timers are
 * gone, and no promise of its settles.
 */
export class Page {
  readonly module: BrowserModule;
  /** The delays that were asked for, in milliseconds. */
  readonly delays: number[] = [];
  readonly #ended = new AbortController();
  readonly #timers = new Set<NodeJS.Timeout>();

  constructor({ storage, globals = {}, speed = 1 }: PageOptions = {}) {
    script ??= bundled("iife");
    const page = { crypto, ...(storage && { sessionStorage: storage }) };
    Object.defineProperties(page, Object.getOwnPropertyDescriptors(globals));
    const set = (then: () => void, ms = 0) => {
      if (this.#ended.signal.aborted) return;
      this.delays.push(ms);
      // The bounds of a call, unless a test has set its own: a busy machine needs them.
      const isBound = ms === 30_000 || ms === 2e9;
      const timer = setTimeout(
        () => {
          this.#timers.delete(timer);
          then();
        },
        isBound ? ms : ms / speed,
      );
      this.#timers.add(timer);
      return timer;
    };
    const make = new Function("globalThis", "fetch", "setTimeout", `${script}; return submitLock;`);
    this.module = make(page, this.fetch, set);
  }

  /** `fetch` in this page. */
  readonly fetch = async (input: string | Request, init: RequestInit = {}): Promise<Response> => {
    const ended = this.#ended.signal;
    const signal = init.signal ? AbortSignal.any([init.signal, ended]) : ended;
    // A page that was closed learns nothing any more.
    const never = new Promise<never>(() => {});
    try {
      const response = await fetch(input, { ...init, signal });
      return ended.aborted ? never : response;
    } catch (error) {
      if (ended.aborted) return never;
      throw error;
    }
  };

  get submitOnce(): BrowserModule["submitOnce"] {
    return this.module.submitOnce;
  }

  close(): void {
    this.#ended.abort();
    for (const timer of this.#timers) clearTimeout(timer);
  }
}
