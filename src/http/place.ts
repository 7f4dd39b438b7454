import { InvalidOptionError } from "../errors.ts";
import { hasMembers, invalidOption } from "../validation.ts";

type Own = "express" | "koa" | "fastify" | "fetch";

/** Each guard's arguments: their name in a message, and members that even a test double has. */
const guards: Record<Own, { readonly expected: string; readonly least: readonly string[][] }> = {
  express: { expected: "a request and a response of Express", least: [["headers"], ["setHeader"]] },
  koa: { expected: "a context of Koa", least: [["req", "res"]] },
  fastify: { expected: "a request and a reply of Fastify", least: [["raw"], ["raw"]] },
  fetch: { expected: "a Request", least: [["headers", "url"]] },
};

const names = {
  ...{ express: "Express", koa: "Koa", fastify: "Fastify", fetch: "a framework of fetch" },
  hono: "Hono",
};

/**
 * Checks that a guard is called by its own framework, with a request. Returns true, or throws an
 * InvalidOptionError that names the fix, and never rejects: Express 4 and routers ignore
 * rejections. Each guard calls this function until one request has passed.
 */
export function checkPlace(own: Own, ...args: readonly unknown[]): boolean {
  if (typeof args[0] === "function") {
    const mount = "mount it in front of the handler, as in router.post(path, guard, handler)";
    const fix = own === "koa" ? mount : "write guard.protect(handler)";
    throw new InvalidOptionError(`guard: expected a request, got a function: ${fix}`);
  }
  const place = frameworkOf(args);
  const call = "write (c) => handler(c.req.raw)";
  if (place === "hono" && own === "fetch") {
    throw new InvalidOptionError(`guard: expected a Request, got the context of Hono: ${call}`);
  }
  if (place !== undefined && place !== own) {
    const entry = place === "hono" ? `"submit-lock/fetch", and ${call}` : `"submit-lock/${place}"`;
    throw new InvalidOptionError(
      `this is the guard of submit-lock/${own}, and ${names[place]} has called it: import { submitGuard } from ${entry}`,
    );
  }
  const { expected, least } = guards[own];
  if (!least.every((members, index) => hasMembers(args[index], members))) {
    throw invalidOption("guard", expected, args[0]);
  }
  // Without `next` the error of a handler would be lost, and its lock held for `maxHoldMs`.
  if (own === "express" && typeof args[2] !== "function") {
    throw invalidOption("guard", "next as its third argument, a function", args[2]);
  }
  return true;
}

/** Recognises a framework by the arguments that it passes to a handler; `undefined` if unsure. */
function frameworkOf([first, second]: readonly unknown[]): keyof typeof names | undefined {
  if (hasMembers(first, ["req", "res", "request", "response"])) return "koa";
  if (hasMembers(first, ["req", "env", "var", "json"])) return "hono";
  if (hasMembers(first, ["raw"]) && hasMembers(second, ["raw"])) return "fastify";
  if (hasMembers(first, ["clone", "headers", "url"])) return "fetch";
  const isNode = hasMembers(first, ["headers", "httpVersion"]) && hasMembers(second, ["setHeader"]);
  return isNode ? "express" : undefined;
}
