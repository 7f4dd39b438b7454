import { readFile } from "node:fs/promises";
import type { Part } from "./front.ts";

const types: Record<string, string> = {
  "index.html": "text/html; charset=utf-8",
  "page.css": "text/css; charset=utf-8",
  "page.js": "text/javascript; charset=utf-8",
  "submits.js": "text/javascript; charset=utf-8",
  "words.js": "text/javascript; charset=utf-8",
  "status.js": "text/javascript; charset=utf-8",
};

/** The files of examples/demo/page, as they are. */
export const staticPage: Part = async (req, res, { pathname }) => {
  const name = pathname === "/" ? "index.html" : pathname.slice("/page/".length);
  const type = types[name];
  if (req.method !== "GET" || type === undefined) return false;
  if (pathname !== "/" && !pathname.startsWith("/page/")) return false;
  const content = await readFile(new URL(`./page/${name}`, import.meta.url));
  res.writeHead(200, { "Content-Type": type, "Cache-Control": "no-cache" }).end(content);
  return true;
};
