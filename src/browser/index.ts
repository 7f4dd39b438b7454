import { doubts, forget, idOf } from "./ids.ts";

export { idOf } from "./ids.ts";
export { type ProtectableForm, type ProtectFormOptions, protectForm } from "./protect-form.ts";

/** The options that {@link submitOnce} adds to those of `fetch`. */
export interface SubmitOnceOptions {
  /** Which order this is, such as `cart:17`; on a server, and whose. @defaultValue the URL's path */
  readonly name?: string | undefined;
  /** The page's own id, such as cart and version: two tabs are one order. @defaultValue `idOf(name)` */
  readonly id?: string | undefined;
  /** How long an answer is awaited, over all tries. @defaultValue 30 000 */
  readonly timeoutMs?: number | undefined;
  /** Called before each wait, for the page to show. */
  readonly onWaiting?: ((waiting: Waiting) => void) | undefined;
}

/** No answer, 409 `idempotency_in_flight`, or a refusal that passes; and how often it was sent. */
export interface Waiting {
  readonly reason: "network" | "in_flight" | "unavailable";
  readonly tries: number;
}

/** The options of `fetch`, and `once`. */
export type SubmitOnceInit = RequestInit & { readonly once?: SubmitOnceOptions | undefined };

/** No final answer came: **the order may be placed**. The same call asks again, with the same id. */
export class SubmitUnansweredError extends Error {
  override readonly name = "SubmitUnansweredError";
  readonly code = "SUBMIT_UNANSWERED";
  readonly id: string;
  readonly tries: number;
  /** @param cause the reason of an abort, else the last error, or the last answer. */
  constructor({ id, tries }: { id: string; tries: number }, cause: unknown) {
    super("the order may be placed: it was sent, and no final answer came", { cause });
    this.id = id;
    this.tries = tries;
  }
}

/** A request that is sent until it is answered, or until its last caller has left. */
interface Flight {
  readonly id: string;
  readonly callers: Set<SubmitOnceOptions>;
  readonly stop: AbortController;
  tries: number;
  cause?: unknown;
  timer?: ReturnType<typeof setTimeout>;
  answer?: Promise<Response>;
}

const flights = new Map<string, Flight>();
/**
 * `fetch` for one order: its id is sent as `Idempotency-Key`, and again, with the same body, after a
 * lost connection, 408, 425, 429, 502, 503, 504 and 409 `idempotency_in_flight`. Behind a guard with
 * `idempotency` that is one order; without one, each try is. The id is kept over reloads, until 2xx,
 * 3xx, or 4xx other than 401 and 409 `submit_contended`. The body has arrived when it resolves.
 * @throws SubmitUnansweredError without a final answer in time, or aborted after something was sent.
 * @throws TypeError for arguments that `fetch` refuses, and for a body that cannot be sent twice.
 */
export async function submitOnce(
  input: string | URL | Request,
  { once = {}, ...init }: SubmitOnceInit = {},
): Promise<Response> {
  const body = Object(init.body);
  if (body.getReader || body[Symbol.asyncIterator]) {
    throw new TypeError(`init.body: expected a repeatable body, got ${body}`);
  }
  const given = input instanceof Request ? input.clone() : undefined;
  // Throws where `fetch` would: its refusal looks like a lost connection.
  const request = new Request(given ?? input, { ...init, signal: null });
  const signal = init.signal === undefined ? (input as Partial<Request>).signal : init.signal;
  if (signal?.aborted) throw signal.reason ?? new Error("aborted");
  // React Native's `URL` has no path.
  const name = once.name ?? (request.url.replace(/^\w+:\/\/[^/?#]*|[?#].*/g, "") || "/");
  const key = JSON.stringify([name, once.id]);
  const fresh = { id: once.id || idOf(name), callers: new Set<SubmitOnceOptions>(), tries: 0 };
  const flight: Flight = flights.get(key) ?? { ...fresh, stop: new AbortController() };
  const land = () => flights.get(key) === flight && flights.delete(key);
  request.headers.set("Idempotency-Key", flight.id);
  flights.set(key, flight);
  flight.answer ??= answerTo(flight, name, request).finally(land);
  const caller = { ...once };
  flight.callers.add(caller);
  return await new Promise((resolve, reject) => {
    const leave = (cause: unknown) => {
      clearTimeout(timer);
      signal?.removeEventListener("abort", onAbort);
      reject(new SubmitUnansweredError(flight, cause));
      // An abort of a flight that has landed would end the body of its answer.
      if (!flight.callers.delete(caller) || flight.callers.size > 0 || !land()) return;
      clearTimeout(flight.timer);
      flight.stop.abort();
    };
    const onAbort = () => leave(signal?.reason);
    // A timer that is set for more than 2³¹ ms fires at once.
    const timer = setTimeout(() => leave(flight.cause), Math.min(once.timeoutMs ?? 30_000, 2e9));
    signal?.addEventListener("abort", onAbort);
    flight.answer?.then((response) => leave(resolve(response.clone())), leave);
  });
}

/** Resolves with the final answer. If the flight is stopped first, it rejects or never settles. */
async function answerTo(flight: Flight, name: string, request: Request): Promise<Response> {
  for (flight.tries = 1; ; flight.tries++) {
    let reason: Waiting["reason"] = "network";
    let delayMs = Math.min(3_000, 100 * 2 ** flight.tries);
    try {
      const response = await fetch(request.clone(), { signal: flight.stop.signal });
      const { headers, redirected, status, type } = response;
      // A connection that is lost before the end of the body is a lost answer.
      const [, code] = /"code"\s*:\s*"(\w+)"/.exec(await response.clone().text()) ?? [];
      if (status === 409 && code === "idempotency_in_flight") reason = "in_flight";
      else if ([408, 425, 429, 502, 503, 504].includes(status)) reason = "unavailable";
      else {
        const isDoubted = doubts.get(flight.id) ?? true;
        doubts.set(flight.id, false);
        // Behind a redirect, a 4xx is about the page of an order that may be placed.
        const isKept = status >= 500 || status === 401 || code === "submit_contended" || redirected;
        if (type !== "opaque" && (status < 400 || !(isKept || isDoubted))) forget(name, flight.id);
        return response;
      }
      flight.cause = response;
      const given = headers.get("Retry-After") ?? "";
      // By the server's clock: the customer's may be wrong.
      const now = Date.parse(headers.get("Date") ?? "") || Date.now();
      const givenMs = /^\d+$/.test(given) ? Number(given) * 1_000 : Date.parse(given) - now;
      // After 0, a crowd of pages would ask without a pause.
      if (!Number.isNaN(givenMs)) delayMs = Math.min(Math.max(givenMs, 200), 1e9);
    } catch (error) {
      flight.cause = error;
    }
    doubts.set(flight.id, true);
    if (flight.stop.signal.aborted) throw flight.cause;
    for (const { onWaiting } of flight.callers) onWaiting?.({ reason, tries: flight.tries });
    await new Promise((resolve) => {
      flight.timer = setTimeout(resolve, delayMs * (1 + Math.random() / 4));
    });
  }
}
