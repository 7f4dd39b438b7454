import type { Framework } from "../../../http/frameworks.ts";
import type { Found } from "./judge.ts";
import { textOf } from "./wire.ts";

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
/** Hono's server may answer 500 for a status that takes no body. */
const isBodiless = (found: Found) =>
  statuses(found).some((each) => [204, 205, 304].includes(each)) ||
  (found.program.family === "fetch" && /20[45]|304/.test(JSON.stringify(found.program.script)));
const isAnyHeader = ({ part }: Found) => part.startsWith("header ");
const isFailing = ({ program: { script } }: Found) => /"fails":\d/.test(JSON.stringify(script));
/** Whether a step follows the first one that ends the answer. */
const goesOn = ({ program: { script } }: Found) =>
  script.slice(0, -1).some(([name]) => ends.test(name));
const isOfBytes = ({ program: { script } }: Found) => /octet-stream/.test(JSON.stringify(script));
const isJson = ({ answers: [first] }: Found) => /json/.test(`${first.headers.get("content-type")}`);
const isOfTexts = ({ program: { script } }: Found) => JSON.stringify(script).includes('"text"');
const isCut = (expected: string, got: string) => got.startsWith(expected.slice(0, -1));
const ends = /^(raw )?(send|throw|return|redirect|callNotFound|pipe|json|end|next|destroy)/;
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
      (isAround(found, /compress/) && isHeader(found, "content-encoding", "vary")) ||
      // Text that is added to bytes that were compressed.
      (isAround(found, /compress/) && isAround(found, /wraps/) && found.part === "body") ||
      // Hono leaves the coding of a compressed response on the answer of its error handler.
      (isAround(found, /fails/) && isAround(found, /compress/) && found.got.includes("not gzip: ")),
  },
  {
    name: "empty",
    families: ["fastify", "fetch"],
    why: "A repeat without a body has no content type, and hooks get an empty text.",
    allows: (found) =>
      isRepeat(found) &&
      // Also where outer middleware has compressed nothing.
      textOf(found.answers[0]) === "" &&
      (isHeader(found, "content-type") || isAround(found, /text|compress/)),
  },
  {
    name: "bodiless",
    families: all,
    why: "With 204, 205 and 304 the framework or Node drops a body or refuses it, and a repeat has none from the start.",
    allows: (found) =>
      isRepeat(found) &&
      isBodiless(found) &&
      (isAnyHeader(found) || /body|status|runs/.test(found.part)),
  },
  {
    name: "buffered",
    families: ["express"],
    why: "Middleware that holds the answer back takes status and headers behind the first `write`: a repeat has the head as of that `write`.",
    allows: (found) =>
      isRepeat(found) &&
      (isAnyHeader(found) || found.part === "status") &&
      isAround(found, /buffer|slowly|session|compress/),
  },
  {
    name: "flushed",
    families: ["koa"],
    why: "A head that is flushed passes outer middleware by, which changes the repeat.",
    allows: (found) => isRepeat(found) && has(found, /^flush$/) && found.program.outside.length > 0,
  },
  {
    name: "value",
    families: ["koa", "fastify"],
    why: "What has a JSON type is repeated as a value, other texts as text, and what has the type of bytes as bytes: outer middleware and hooks may treat them differently.",
    allows: (found) =>
      isRepeat(found) &&
      isAround(found, /compress|text|wraps/) &&
      (has(found, /^(bytes|number|sendBytes)$/) ||
        isOfBytes(found) ||
        (isJson(found) && has(found, /^text$/))),
  },
  {
    name: "set again",
    families: ["koa", "fastify", "fetch"],
    why: "Outer middleware sets its header again, over one that came later at the first time.",
    allows: (found) =>
      isRepeat(found) && isHeader(found, "x-kept") && found.program.outside.includes("late"),
  },
  {
    name: "joined",
    families: all,
    why: "The `Vary` of a repeat is joined to that of outer middleware, which the handler had replaced.",
    allows: (found) =>
      isRepeat(found) &&
      isHeader(found, "vary") &&
      found.expected.split(",").every((each) => found.got.includes(each)),
  },
  {
    name: "behind the end",
    families: ["fastify"],
    why: "What a handler changes when it has sent, while hooks hold the answer back, is not kept. A payload that cannot be sent is the error handler's, as with any `onSend` hook: `send` does not throw.",
    allows: (found) =>
      goesOn(found) && (isRepeat(found) || (found.stage === "first" && statuses(found)[1] === 500)),
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
      (isRepeat(found) && found.expected !== "whole" && found.part === "ending") ||
      // Of a body that fails soon, Hono's server or outer middleware makes an error.
      (found.program.family === "fetch" && isRepeat(found) && isFailing(found)) ||
      (found.part === "runs" && has(found, /pipe|throw|next|sendError/)) ||
      // Inner middleware holds the end back, and the handler fails behind it.
      (found.part === "runs" && found.program.inside.length > 0),
  },
  {
    name: "outer failure",
    families: ["koa", "fastify", "fetch"],
    why: "Outer middleware that fails answers in place of the first answer and of a 409, whose headers stay.",
    allows: (found) =>
      isRepeat(found) &&
      isAround(found, /fails/) &&
      (isAnyHeader(found) || isAround(found, /compress/) || found.answers[0].ending !== "whole"),
  },
  {
    name: "answered twice",
    families: ["express", "fastify"],
    why: "A handler that sends twice, or fails when it has sent or begun to pipe: which of the two the client gets depends on when streams and hooks have run, and a repeat is the first.",
    allows: (found) => {
      const { family, script } = found.program;
      const isLate = family === "fastify" || isAround(found, /buffer|slowly|session|compress/);
      const isPiped = has(found, /pipe$/) && goesOn(found);
      const isTwice = script.filter(([name]) => ends.test(name)).length > 1;
      // Express fails the connection for a header that is set behind the end.
      return isPiped || (isLate && (family === "express" ? goesOn(found) : isTwice));
    },
  },
  {
    name: "miscounted",
    families: ["express", "koa"],
    why: "Of an answer that is longer than its `Content-Length`, a client reads the announced part, and a repeat has all. Koa leaves that of an earlier body with a web stream, whose end is not seen: it is held to `maxHoldMs`, and then runs again.",
    allows: (found) =>
      isRepeat(found) &&
      ((found.part === "body" && found.got.startsWith(found.expected)) ||
        (found.part === "runs" &&
          has(found, /^(web|response)$/) &&
          found.answers[0].headers.has("content-length"))),
  },
  {
    name: "failed at once",
    families: ["fetch"],
    why: "A body that fails before its first byte is an error of Hono's server or a broken connection, with and without a guard, as the turn of its failure has it.",
    allows: (found) =>
      !isRepeat(found) &&
      found.part === "ending" &&
      found.answers.some(({ ending, status }) => ending === "whole" && status === 500) &&
      (found.expected === "broken" || isFailing(found)),
  },
  {
    name: "texts",
    families: ["fetch"],
    why: "Hono's server counts the characters of a text that a stream sends, and cuts off bytes; behind a guard texts are their UTF-8 bytes.",
    allows: (found) =>
      isOfTexts(found) &&
      (isCut(found.expected, found.got) || (!isRepeat(found) && statuses(found)[0] === 500)),
  },
  {
    name: "headless",
    families: ["fetch"],
    why: "The answer to a HEAD has no body behind a guard: outer middleware makes no `ETag` of it, and does not see it fail.",
    allows: (found) =>
      found.program.method === "HEAD" &&
      (isHeader(found, "etag", "content-type") ||
        (isFailing(found) && found.program.outside.length > 0)),
  },
  {
    name: "hijacked",
    families: ["koa", "fastify"],
    why: "What is written by hand, behind `hijack()` or `ctx.respond = false`, passes hooks and outer middleware by, and the repeat does not.",
    allows: (found) => isRepeat(found) && has(found, /by hand/) && found.program.outside.length > 0,
  },
  {
    name: "of a library",
    families: ["fetch"],
    why: "The `Response` of a library, whose class is not the platform's: Hono's server fails for a HEAD, and where outer middleware has failed too, reads a line of a header that is repeated.",
    allows: (found) =>
      !isRepeat(found) &&
      has(found, /^ofLibrary /) &&
      ((found.program.method === "HEAD" && statuses(found)[0] === 500) ||
        (isAround(found, /fails/) && isAnyHeader(found))),
  },
  {
    name: "of an error handler",
    families: ["koa", "fastify"],
    why: "What an error handler has answered is told to a repeat that waited, through outer middleware that the error had passed by.",
    allows: (found) =>
      isRepeat(found) &&
      found.answers[0].status >= 400 &&
      found.program.second !== undefined &&
      found.program.outside.length > 0,
  },
];
