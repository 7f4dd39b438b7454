import { InvalidOptionError } from "../errors.ts";
import { hasMembers } from "../validation.ts";

type Place = keyof typeof names;

const names = { express: "Express", koa: "Koa", fastify: "Fastify", fetch: "a framework of fetch" };

/**
 * Returns a check of a guard's arguments, for its first request alone: throws an InvalidOptionError
 * that names the fix where another framework calls the guard, or a handler is passed. It throws at
 * once, because Express 4 and a router see no rejection.
 */
export function placeCheck(own: Place): (...args: readonly unknown[]) => void {
  let isInPlace = false;
  return (...args) => {
    if (!isInPlace) check(own, args);
    isInPlace = true;
  };
}

function check(own: Place, args: readonly unknown[]): void {
  if (typeof args[0] === "function") {
    const mount = "mount it in front of the handler, as in router.post(path, guard, handler)";
    const fix = own === "koa" ? mount : "write guard.protect(handler)";
    throw new InvalidOptionError(`guard: expected a request, got a function: ${fix}`);
  }
  const place = placeOf(args);
  if (place === undefined || place === own) return;
  throw new InvalidOptionError(
    `this is the guard of submit-lock/${own}, and ${names[place]} has called it: import { submitGuard } from "submit-lock/${place}"`,
  );
}

/** Recognises a framework by what it passes to a handler; `undefined` if that is not certain. */
function placeOf([first, second]: readonly unknown[]): Place | undefined {
  if (hasMembers(first, ["req", "res", "request", "response"])) return "koa";
  if (hasMembers(first, ["raw"]) && hasMembers(second, ["raw"])) return "fastify";
  if (hasMembers(first, ["clone", "headers", "url"])) return "fetch";
  const isNode = hasMembers(first, ["headers", "httpVersion"]) && hasMembers(second, ["setHeader"]);
  return isNode ? "express" : undefined;
}
