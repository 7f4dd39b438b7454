import { createServer, type RequestListener, type Server } from "node:http";
import { createServer as createHttp2Server, type Http2Server } from "node:http2";
import express5 from "express";
import express4 from "express4";
import Koa3 from "koa";
import Koa2 from "koa2";
import { expressListener } from "./express-app.ts";
import { fastifyListener } from "./fastify-app.ts";
import { fetchListener } from "./fetch-app.ts";
import { koaListener } from "./koa-app.ts";
import type { AppParts, Family } from "./turn.ts";

export interface Framework {
  readonly name: string;
  readonly family: Family;
  readonly major: number;
  readonly http: 1 | 2;
  /** Whether the adapter sees when the handler is done, and not only when the response has ended. */
  readonly seesWork: boolean;
  listener(parts: AppParts): RequestListener;
  makeServer(parts: AppParts): Server | Http2Server;
}

function express(major: 4 | 5, lib: typeof express5, mount: "protect" | "guard"): Framework {
  const listener = (parts: AppParts) => expressListener(lib, mount, parts);
  return {
    name: `Express ${major}, ${mount === "protect" ? "guard.protect(handler)" : "plain guard"}`,
    family: "express",
    major,
    http: 1,
    seesWork: mount === "protect",
    listener,
    makeServer: (parts) => createServer(listener(parts)),
  };
}

function koa(major: 2 | 3, lib: typeof Koa3, http: 1 | 2): Framework {
  const listener = (parts: AppParts) => koaListener(lib, parts);
  return {
    name: `Koa ${major}${http === 2 ? ", HTTP/2" : ""}`,
    family: "koa",
    major,
    http,
    seesWork: true,
    listener,
    makeServer: (parts) =>
      http === 1
        ? createServer(listener(parts))
        : // The types of the two differ where the compatibility layer does not.
          createHttp2Server(listener(parts) as never),
  };
}

function fastify(http: 1 | 2): Framework {
  return {
    name: `Fastify 5${http === 2 ? ", HTTP/2" : ""}`,
    family: "fastify",
    major: 5,
    http,
    seesWork: true,
    listener: (parts) => fastifyListener(parts, http),
    makeServer: (parts) =>
      http === 1
        ? createServer(fastifyListener(parts, http))
        : createHttp2Server(fastifyListener(parts, http) as never),
  };
}

function fetchOnHono(http: 1 | 2): Framework {
  return {
    name: `fetch, on Hono${http === 2 ? ", HTTP/2" : ""}`,
    family: "fetch",
    major: 4,
    http,
    seesWork: true,
    listener: fetchListener,
    makeServer: (parts) =>
      http === 1
        ? createServer(fetchListener(parts))
        : createHttp2Server(fetchListener(parts) as never),
  };
}

/** The workflow runs everything; `npm test` leaves out what others of the table show as well. */
const isWhole = process.env["TEST_FRAMEWORKS"] === "all";
const onlyWhole = (...more: Framework[]): Framework[] => (isWhole ? more : []);

/** Where a guard protects a handler, and is no middleware among others. */
export const newer: readonly Framework[] = [
  fastify(1),
  ...onlyWhole(fastify(2)),
  fetchOnHono(1),
  ...onlyWhole(fetchOnHono(2)),
];

/** Express and Koa in every way to mount the guard. Express does not run on HTTP/2. */
const frameworks: readonly Framework[] = [
  express(4, express4, "protect"),
  ...onlyWhole(express(4, express4, "guard")),
  express(5, express5, "protect"),
  express(5, express5, "guard"),
  koa(2, Koa2, 1),
  koa(3, Koa3, 1),
  ...onlyWhole(koa(2, Koa2, 2)),
  koa(3, Koa3, 2),
];

/** One entry for each of the four frameworks, mounted as the README says. */
export const mainFrameworks: readonly Framework[] = frameworks.filter(
  ({ http, seesWork }) => http === 1 && seesWork,
);

export const onHttp1: readonly Framework[] = frameworks.filter(({ http }) => http === 1);

/** Where the end of the work is seen. */
export const seeing: readonly Framework[] = frameworks.filter(({ seesWork }) => seesWork);

/** Where only the end of the response is seen. */
export const blind: readonly Framework[] = frameworks.filter(({ seesWork }) => !seesWork);

export const koas: readonly Framework[] = frameworks.filter(({ family }) => family === "koa");

export const expresses: readonly Framework[] = frameworks.filter(
  ({ family }) => family === "express",
);

/** For suites in which nothing but the guard and the handler has a request. */
export const all: readonly Framework[] = [...frameworks, ...newer];

/** Of these, where the end of the work is seen. */
export const allSeeing: readonly Framework[] = all.filter(({ seesWork }) => seesWork);

export const allOnHttp1: readonly Framework[] = all.filter(({ http }) => http === 1);

/** One entry for each framework, mounted as the README says. */
export const allMain: readonly Framework[] = allSeeing.filter(({ http }) => http === 1);

/** For what no major of a framework changes: in `npm test` the newest of each family. */
export const newest: readonly Framework[] = isWhole
  ? allMain
  : allMain.filter(({ family }, i) => family !== allMain[i + 1]?.family);

/** With HTTP/2, on which Node shows a request and a response in another way. */
export const newestOnBoth: readonly Framework[] = [
  ...newest,
  ...koas.filter(({ http, major }) => http === 2 && (isWhole || major === 3)),
];

/** Whether middleware can stand between the guard and its handler, and compress what is written. */
export function hasLayers({ family }: Framework): boolean {
  return family === "express" || family === "koa";
}

/** Whether a handler may write Node's response by hand, and go on after it has answered. */
export function writesByHand({ family }: Framework): boolean {
  return family !== "fetch";
}

/** Whether the guard sees error handlers and middleware around it, and what they answer. */
export function seesOutside({ family }: Framework): boolean {
  return family !== "fetch";
}

/** Whether a parser reads the body before the guard, and an error handler what the guard throws. */
export function hasParsers({ family }: Framework): boolean {
  return family !== "fetch";
}

/**
 * Whether the guard sees a client leave whose response waits behind another one. Hono's server waits
 * for the response's own `close`, which Node 20 and 22 do not emit then.
 */
export function seesQueued({ family }: Framework): boolean {
  return family !== "fetch";
}

/** Whether an error handler gets what is thrown and is no `Error`. Hono passes it on to its server. */
export function catchesAnything({ family }: Framework): boolean {
  return family !== "fetch";
}
