import type { Framework } from "../../../http/frameworks.ts";
import type { Found } from "./judge.ts";

/** A difference that is meant, or that the framework makes by itself. */
export interface Difference {
  readonly name: string;
  readonly families: readonly Framework["family"][];
  readonly why: string;
  readonly allows: (found: Found) => boolean;
}

const all: readonly Framework["family"][] = ["express", "koa", "fastify", "fetch"];
const isRepeat = ({ stage }: Found) => stage === "repeat";
const has = ({ program: { script } }: Found, names: RegExp) =>
  script.some(([name]) => names.test(name));
const isAround = ({ program: { inside, outside } }: Found, names: RegExp) =>
  [...outside, ...inside].some((name) => names.test(name));
const isHeader = ({ part }: Found, ...names: string[]) =>
  names.some((name) => part === `header ${name}`);
const statuses = ({ answers }: Found) => answers.map(({ status }) => status);
const isBodiless = (found: Found) =>
  /20[45]|304/.test(JSON.stringify([found.program.script, statuses(found)]));
const plain = (type: string) =>
  type
    .replaceAll(" ", "")
    .toLowerCase()
    .replace(/;charset=utf-8$/, "");

export const differences: readonly Difference[] = [
  {
    name: "counted",
    families: ["fetch"],
    why: "Behind a guard, Hono's server takes the whole `Response`: it counts a short body, writes the type in another case or with its charset, and outer compression sees a body of known length.",
    allows: (found) =>
      (!isRepeat(found) && isHeader(found, "content-length", "transfer-encoding")) ||
      (isHeader(found, "content-type") && plain(found.expected) === plain(found.got)) ||
      (isAround(found, /compress/) && isHeader(found, "content-encoding", "vary")),
  },
  {
    name: "empty",
    families: ["fastify", "fetch"],
    why: "A repeat without a body has no content type, and hooks get an empty text.",
    allows: (found) =>
      isRepeat(found) &&
      found.answers[0].body.length === 0 &&
      (isHeader(found, "content-type") || isAround(found, /text|compress/)),
  },
  {
    name: "bodiless",
    families: all,
    why: "With 204, 205 and 304 the framework or Node drops a body or refuses it, and a repeat has none from the start.",
    allows: (found) => isRepeat(found) && isBodiless(found),
  },
  {
    name: "buffered",
    families: ["express"],
    why: "Middleware that holds the answer back takes headers behind the first `write`: a repeat has the head as of that `write`.",
    allows: (found) => isRepeat(found) && isAround(found, /buffer|slowly|session|compress/),
  },
  {
    name: "removed",
    families: ["express", "koa", "fastify"],
    why: "A header of outer middleware that the handler took away is there again in a repeat.",
    allows: (found) => isRepeat(found) && found.expected === "none" && has(found, /remove/i),
  },
  {
    name: "located",
    families: all,
    why: "A redirect, or an answer with `Location`, is repeated without a body that was not kept.",
    allows: (found) =>
      isRepeat(found) &&
      (found.answers[0].headers.has("location") || /^3/.test(`${found.answers[0].status}`)) &&
      (found.answers[1].body.length === 0 || isAround(found, /compress|text|wraps/)) &&
      (found.part === "body" || isHeader(found, "content-type", "content-encoding", "vary")),
  },
  {
    name: "abandoned",
    families: all,
    why: "An answer that was begun and broke off is repeated by its head alone, as a 409, or runs again.",
    allows: (found) =>
      (isRepeat(found) && found.expected === "broken") ||
      (found.part === "runs" && has(found, /pipe|throw|next/)),
  },
  {
    name: "outer failure",
    families: ["koa", "fastify"],
    why: "Outer middleware that fails answers in place of a 409, whose headers stay.",
    allows: (found) =>
      isRepeat(found) &&
      isAround(found, /fails/) &&
      (isHeader(found, "cache-control") ||
        found.answers[0].ending !== "whole" ||
        has(found, /by hand/)),
  },
  {
    name: "answered twice",
    families: ["fastify"],
    why: "A handler that calls `callNotFound` and answers or throws as well: which of the two the client gets depends on when the hooks have run.",
    allows: (found) =>
      has(found, /callNotFound/) && has(found, /^(send|throw|return|json|redirect)/),
  },
  {
    name: "hijacked",
    families: ["fastify"],
    why: "Behind `hijack()` no hook runs, and the repeat passes the hooks.",
    allows: (found) => isRepeat(found) && has(found, /by hand/),
  },
];
