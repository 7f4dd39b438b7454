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

const names = { express: "Express", koa: "Koa", fastify: "Fastify", fetch: "a framework of fetch" };

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
  const known = frameworkOf(args);
  const member = known === undefined ? requestIn(args[0]) : undefined;
  const call = member && `write (c) => handler(c.${member})`;
  if (call !== undefined && own === "fetch") {
    throw new InvalidOptionError(`guard: expected a Request, got an object that has one: ${call}`);
  }
  const place = call === undefined ? known : "fetch";
  if (place !== undefined && place !== own) {
    const entry = `"submit-lock/${place}"${call === undefined ? "" : `, and ${call}`}`;
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

/** Where Hono (`req.raw`), h3 2 (`req`), Elysia, SvelteKit and others (`request`) have a Request. */
function requestIn(context: unknown): string | undefined {
  const name = ["req", "request"].find((each) => hasMembers(context, [each]));
  if (name === undefined) return undefined;
  const value = Object(context)[name];
  if (isRequest(value)) return name;
  return isRequest(Object(value).raw) ? `${name}.raw` : undefined;
}

function isRequest(value: unknown): boolean {
  return hasMembers(value, ["clone", "headers", "url"]);
}

/** Recognises a framework by the arguments that it passes to a handler; `undefined` if unsure. */
function frameworkOf([first, second]: readonly unknown[]): Own | undefined {
  if (hasMembers(first, ["req", "res", "request", "response"])) return "koa";
  if (hasMembers(first, ["raw"]) && hasMembers(second, ["raw"])) return "fastify";
  if (isRequest(first)) return "fetch";
  const isNode = hasMembers(first, ["headers", "httpVersion"]) && hasMembers(second, ["setHeader"]);
  return isNode ? "express" : undefined;
}
