import { execFile } from "node:child_process";
import { once } from "node:events";
import { existsSync, readdirSync, readFileSync, statSync } from "node:fs";
import { createServer } from "node:http";
import type { AddressInfo } from "node:net";
import { extname, join } from "node:path";
import { promisify } from "node:util";
import { ROOT } from "../../docs/page.ts";

const FOLDER = join(ROOT, "docs/.vitepress/dist");
const TYPES: Record<string, string> = {
  ".css": "text/css",
  ".html": "text/html; charset=utf-8",
  ".js": "text/javascript",
  ".json": "application/json",
  ".png": "image/png",
  ".svg": "image/svg+xml",
};

/** Where a forge publishes the site: below the name of the repository. */
const BASE = process.env["SITE_BASE"] ?? "/submit-lock/";

/** Builds the site as a contributor does. The generator takes `NODE_ENV` for its own. */
export async function buildSite(): Promise<void> {
  const { NODE_ENV: _n, ...env } = process.env;
  const options = { cwd: ROOT, env: { ...env, SITE_BASE: BASE }, maxBuffer: 16 * 1_048_576 };
  await promisify(execFile)("npm", ["run", "docs:site"], options);
}

export interface ServedSite {
  /** Ends with a slash. */
  readonly url: string;
  /** The path of every page, without the base: `guide/once.html`. */
  readonly pages: readonly string[];
  /** The HTML of a page as it was built. */
  html(page: string): string;
  /** The file that a path leads to, without the base, or `undefined`. */
  fileOf(path: string): string | undefined;
  close(): Promise<void>;
}

/** A plain server of files. The site needs no more than that. */
export async function serveSite(): Promise<ServedSite> {
  const fileOf = (path: string) => {
    const file = join(FOLDER, path.endsWith("/") || path === "" ? `${path}index.html` : path);
    return existsSync(file) && statSync(file).isFile() ? file : undefined;
  };
  const server = createServer((req, res) => {
    const path = decodeURIComponent(new URL(req.url as string, "http://site").pathname);
    const file = path.startsWith(BASE) ? fileOf(path.slice(BASE.length)) : undefined;
    if (file === undefined) {
      res.writeHead(404).end();
      return;
    }
    const type = TYPES[extname(file)] ?? "text/plain; charset=utf-8";
    res.writeHead(200, { "content-type": type }).end(readFileSync(file));
  }).listen(0, "127.0.0.1");
  await once(server, "listening");
  const { port } = server.address() as AddressInfo;
  return {
    url: `http://127.0.0.1:${port}${BASE}`,
    pages: readdirSync(FOLDER, { recursive: true, encoding: "utf8" })
      .map((file) => file.replaceAll("\\", "/"))
      .filter((file) => file.endsWith(".html") && file !== "404.html")
      .sort(),
    html: (page) => readFileSync(join(FOLDER, page), "utf8"),
    fileOf,
    async close() {
      server.closeAllConnections();
      server.close();
      await once(server, "close");
    },
  };
}
