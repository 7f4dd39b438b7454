import { readFile } from "node:fs/promises";
import type { Part } from "./front.ts";

const folders: Record<string, string> = {
  page: new URL("./page/", import.meta.url).href,
  "submit-lock": import.meta.resolve("submit-lock/browser"),
};
const types: Record<string, string> = { html: "html", css: "css", js: "javascript" };

/** The files of examples/demo/page and of `submit-lock/browser`, as they are. */
export const staticPage: Part = async (req, res, { pathname }) => {
  const path = pathname === "/" ? "/page/index.html" : pathname;
  const [, folder = "", name = "", ending = ""] =
    /^\/(page|submit-lock)\/([\w-]+\.(html|css|js))$/.exec(path) ?? [];
  if (req.method !== "GET" || name === "") return false;
  const content = await readFile(new URL(name, folders[folder])).catch(() => undefined);
  if (content === undefined) return false;
  const head = {
    "Content-Type": `text/${types[ending]}; charset=utf-8`,
    "Cache-Control": "no-cache",
  };
  res.writeHead(200, head).end(content);
  return true;
};
