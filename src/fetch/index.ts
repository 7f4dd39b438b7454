import { InvalidOptionError, NoFingerprintError } from "../errors.ts";
import { admit } from "../http/admission.ts";
import { type GuardOptions, resolveGuardOptions } from "../http/options.ts";
import { checkPlace } from "../http/place.ts";
import type { Adapter, Exchange, WantedAnswer } from "../http/port.ts";
import type { RequestSubmission } from "../http/public.ts";
import type { RequestLease } from "../http/request-lease.ts";
import { headersToRepeat, isRedirect, listedHeaders } from "../http/stored-answer.ts";
import type { Lease } from "../lock/lease.ts";
import type { StoredAnswer } from "../lock/record.ts";
import { type Problem, problemOf } from "../problem.ts";
import { describe, invalidOption, textOfThrown, warnOnce } from "../validation.ts";
import { payloadOf } from "./payload.ts";
import { bodyOf, headOf, mayHaveBody, saysFailure, untilOver } from "./response.ts";

export type * from "../http/public.ts";

/** The options of {@link submitGuard} for handlers of fetch. */
export interface SubmitGuardOptions<Req extends Request = Request>
  extends GuardOptions<Req, [request: Req], Response | Promise<Response>> {
  /**
   * Gets a promise, which never rejects, and the handler's arguments. When the promise settles, the
   * lock is released, or the answer recorded: only then may a platform freeze the process.
   * @defaultValue none
   */
  readonly waitUntil?: // biome-ignore lint/suspicious/noExplicitAny: whatever the framework passes.
  ((promise: Promise<unknown>, request: Req, ...rest: any[]) => void) | undefined;
}

/** The handler of any route: a method, so that its request may be a subclass of `Request`. */
type AnyHandler = {
  // biome-ignore lint/suspicious/noExplicitAny: whatever the framework passes.
  handle(request: Request, ...rest: any[]): Response | Promise<Response>;
}["handle"];

/** A handler without parameters fits any route. */
type ProtectedHandler<Handler extends AnyHandler> = (
  ...args: Parameters<Handler> extends []
    ? [request: Request, ...rest: unknown[]]
    : Parameters<Handler>
) => Promise<Response>;

/** Protects handlers that take a `Request` and return a `Response`. */
export interface SubmitGuard {
  /**
   * Returns a handler that runs yours under the lock. The lock is held until your handler's promise
   * has settled, and the body of its response was read to the end, cancelled or broken off. A body
   * that is complete when the handler returns counts as read.
   *
   * **Await all work that the handler starts.** A stream that is neither read nor cancelled, and
   * whose request has no signal that aborts, holds the lock for `maxHoldMs`.
   * @throws InvalidOptionError for anything but a function.
   */
  protect<Handler extends AnyHandler>(handler: Handler): ProtectedHandler<Handler>;
}

const foundKey = Symbol.for("submit-lock.found");
const shared = globalThis as {
  [foundKey]?: WeakMap<Request, Partial<Pick<RequestLease, "lease" | "submission">>>;
};
/**
 * Each request's lease and submission. A map, because a request may be frozen, or a proxy. Copies
 * of the package, such as those of two bundles, share it: `submissionOf` of another copy than the
 * guard's would find no id, and two orders would get one key at the payment provider.
 */
const found = shared[foundKey] ?? new WeakMap();
if (Object.isExtensible(globalThis)) shared[foundKey] = found;

/** The lease on the user's lock, where a guard has taken it for this request. */
export function leaseOf(request: Request): Lease | undefined {
  return found.get(request)?.lease;
}

/** The submission, where a guard with `idempotency` has found its id and runs the handler. */
export function submissionOf(request: Request): RequestSubmission | undefined {
  return found.get(request)?.submission;
}

/**
 * Makes a guard for handlers of fetch, such as those of Hono, Next.js, Bun, Deno and Remix, which
 * lets one submission of a user through at a time: 409 while another one is processed, 401 without
 * a user, 503 while Redis does not answer.
 *
 * @example
 * ```ts
 * const guard = submitGuard({ lock, userId: (request) => userOf(request) });
 * const POST = guard.protect(async (request) => Response.json(await orderOf(request)));
 * ```
 *
 * @throws InvalidOptionError naming the option, what was expected and what came.
 */
export function submitGuard<Req extends Request = Request>(
  options: SubmitGuardOptions<Req>,
): SubmitGuard {
  const adapter: Adapter<Req, [Req]> = {
    reject: (_request, { problem }) => responseOf(problem),
    replay: (_request, { answer }) => repeated(answer),
    path: ({ url }) => new URL(url).pathname,
    payload: payloadOf,
  };
  const resolved = resolveGuardOptions(options, adapter, "waitUntil");
  const { waitUntil } = options;
  if (waitUntil !== undefined && typeof waitUntil !== "function") {
    throw invalidOption("waitUntil", "a function", waitUntil);
  }

  let isInPlace = false;

  async function enter(handler: AnyHandler, request: Req, rest: unknown[]): Promise<Response> {
    const exchange = new FetchExchange(request);
    const keepAlive = async (promise: Promise<unknown>) => {
      try {
        await waitUntil?.(promise, request, ...rest);
      } catch (error) {
        // Do not throw: an order may be placed, and must be answered.
        const why = "waitUntil failed, so the process may be frozen before a lock is released";
        warnOnce("SUBMIT_LOCK_WAIT_UNTIL_FAILED", `${why}: ${textOfThrown(error)}`);
      }
    };
    if (waitUntil !== undefined) exchange.leaseEnds = keepAlive;
    const admission = await admit(resolved, request, exchange);
    // A response without a reader. Proxies log 499 for a client that has left.
    if (admission.kind === "gone") return new Response(null, { status: 499 });
    if (admission.kind === "answer") {
      const answer = await admission.answer(request);
      if (isResponse(answer)) return labelled(answer, admission.code);
      throw new InvalidOptionError(
        `the guard's functions that answer (onContended and the others): expected a Response, got ${describe(answer)}`,
      );
    }
    if (admission.kind === "unlocked") {
      const { submission } = admission;
      if (submission) found.set(request, { ...found.get(request), submission });
      return await handler(request, ...rest);
    }
    const { held, isOwner, wanted } = admission;
    // An outer guard of another lock may have found the submission.
    const submission = held.submission ?? found.get(request)?.submission;
    found.set(request, { lease: held.lease, submission });
    let head: ReturnType<typeof headToKeep> | undefined;
    let body: Uint8Array | undefined;
    let response: Response | undefined;
    let hasFailed = false;
    const failed = () => {
      hasFailed = true;
    };
    const answer = () => (hasFailed || head === undefined ? undefined : { ...head, body });
    held.begin(wanted && { answer, failed });
    const ended = (bytes?: Uint8Array): void => {
      if (exchange.isAnswered) return;
      body = bytes;
      // The `Response` of srvx has the `Content-Type` of a text only once its body is read.
      const type = head && response?.headers.get("content-type");
      if (head && type) head.headers["content-type"] ??= type;
      exchange.end();
      held.finished();
    };
    const unanswered = (error?: unknown) => {
      if (!exchange.isAnswered) held.failed(error);
      ended();
    };
    try {
      response = await handler(request, ...rest);
    } catch (error) {
      const redirect = redirectOf(error);
      if (redirect !== undefined) {
        head = wanted && headToKeep(redirect, wanted);
        ended(new Uint8Array());
        throw error;
      }
      const own = held.errorOf(error);
      unanswered(own);
      throw own;
    }
    if (!isOwner) {
      ended();
      return response;
    }
    try {
      // Read the head before the body: Hono's own `Response` loses its type as soon as its body is
      // read.
      head = wanted && headToKeep(headOf(response), wanted);
      const keptBytes = wanted?.maxBodyBytes ?? 0;
      const { sent, stream } = await untilOver(response, keptBytes, { ended, unanswered });
      if (stream === undefined) return sent;
      // `waitUntil` is called now, while the platform still has the context of the request.
      if (waitUntil !== undefined && !exchange.isAnswered) void keepAlive(endOf(exchange, held));
      exchange.onClosed(stream.clientLeft);
      if (request.method !== "HEAD") return sent;
      // The body of a HEAD is never read, not even by Hono, which uses the route of GET.
      stream.cancel();
      return new Response(null, headOf(sent));
    } catch {
      // The handler has run, but has returned something other than a `Response` that can be sent.
      // Unless its status is a failure, the order may be placed: no repeat may run.
      if (held.submission !== undefined && !saysFailure(response)) {
        held.submission.placed();
        warnOnce(
          "SUBMIT_LOCK_NO_RESPONSE",
          `a handler under guard.protect has returned ${describe(response)}. Expected a Response that can be sent: this answer cannot be kept, so its repeats are answered 409`,
        );
      }
      unanswered();
      return response;
    }
  }

  return {
    protect: <Handler extends AnyHandler>(handler: Handler) => {
      if (typeof handler !== "function") throw invalidOption("protect", "a handler", handler);
      const protectedHandler = (request: Req, ...rest: unknown[]): Promise<Response> => {
        if (!isInPlace) isInPlace = checkPlace("fetch", request, ...rest);
        return enter(handler, request, rest).catch((error) => {
          // Answer an error that the client caused: fetch has no error handler that reads a status.
          const problem = problemOf(error, request.headers.get("accept"));
          if (problem && error instanceof NoFingerprintError) return responseOf(problem);
          throw error;
        });
      };
      return protectedHandler as unknown as ProtectedHandler<Handler>;
    },
  };
}

/**
 * Checks members, not the class: servers replace the global `Response`, but `fetch` still returns
 * the original.
 */
function isResponse(value: unknown): value is Response {
  const { headers, status } = Object(value);
  return typeof status === "number" && headers !== undefined && "body" in Object(value);
}

/** The status and headers of a response, or of a redirect that a handler has thrown. */
interface AnswerHead {
  readonly status: number;
  readonly headers: Iterable<readonly [name: string, value: string]>;
}

function headToKeep({ headers, status }: AnswerHead, { storedHeaders }: WantedAnswer) {
  // Keep all values of a name: a redirect of a library may list each line by itself.
  return { status, headers: listedHeaders(storedHeaders, [...headers], false) };
}

/** The redirect that a handler has thrown, as in React Router, SvelteKit and Next.js. */
function redirectOf(thrown: unknown): AnswerHead | undefined {
  try {
    const { digest, location, res = thrown, status } = Object(thrown);
    // The error of Next.js: "NEXT_REDIRECT;replace;/orders/7;307;".
    const [, url, code] = /^NEXT_REDIRECT;\w*;(.*);(3\d\d);$/s.exec(digest) ?? [];
    if (url !== undefined) return { status: Number(code), headers: [["location", url]] };
    // SvelteKit throws an object, React Router a `Response`, Hono an error that has one as `res`.
    const all = new Headers(typeof location === "string" ? { location } : [...res.headers]);
    // TanStack's `Response` gets its `Location` behind the guard.
    const isLocatedLater = isRedirect(status) && isResponse(res);
    const isAnswer = isLocatedLater || (all.has("location") && status >= 300 && status < 400);
    return isAnswer ? { status, headers: all } : undefined;
  } catch {
    return undefined;
  }
}

function labelled(response: Response, code: string | undefined): Response {
  if (code === undefined || response.headers.get("submit-lock-code") === code) return response;
  // A copy, because headers may be immutable, as in a response of `fetch` or `Response.redirect`.
  const copy = new Response(response.body, headOf(response));
  copy.headers.set("Submit-Lock-Code", code);
  return copy;
}

function endOf(exchange: FetchExchange, { lease: { signal } }: RequestLease): Promise<unknown> {
  return new Promise((resolve) => {
    exchange.leaseEnds = resolve;
    signal.addEventListener("abort", resolve, { once: true });
  });
}

/** Makes a refusal. No `Content-Length`: outer middleware may copy the headers to another body. */
function responseOf({ status, headers, body }: Problem): Response {
  return new Response(body, { status, headers });
}

function repeated({ status, headers, body }: StoredAnswer): Response {
  const pairs = Object.entries(headersToRepeat(headers)).flatMap(([name, value]) =>
    [value].flat().map((each): [string, string] => [name, each]),
  );
  const isEmpty = body === undefined || body.length === 0 || !mayHaveBody(status);
  const init = { status, headers: new Headers(pairs) };
  return new Response(isEmpty ? null : bodyOf(new Uint8Array(body), init.headers), init);
}

class FetchExchange implements Exchange {
  readonly request: Request;
  leaseEnds?: (ended: Promise<unknown>) => void;
  isAnswered = false;
  clientLeft: boolean;
  watcher: { responseChanged(): void } | undefined;
  /** Kept, because some servers replace a request's signal when the request is cloned. */
  readonly #signal: AbortSignal | undefined;
  #onClosed: (() => void) | undefined;
  readonly #onAbort = (): void => {
    this.clientLeft = true;
    this.#onClosed?.();
    this.watcher?.responseChanged();
  };

  constructor(request: Request) {
    this.request = request;
    // A signal that has aborted already will not call the listener.
    this.#signal = request.signal;
    this.clientLeft = this.#signal?.aborted === true;
  }

  get method(): string {
    return this.request.method;
  }

  header(name: string): string | undefined {
    return this.request.headers.get(name) ?? undefined;
  }

  /** Splits where `Headers` may have joined two lines: at a comma with a space. */
  headerLines(name: string): readonly string[] {
    return this.header(name)?.split(", ") ?? [];
  }

  watch(): void {
    this.#signal?.addEventListener("abort", this.#onAbort);
  }

  stop(): void {
    this.#signal?.removeEventListener("abort", this.#onAbort);
  }

  /** @param listener called when the client leaves, or at once if it has left. */
  onClosed(listener: () => void): void {
    this.#onClosed = listener;
    if (this.clientLeft) listener();
  }

  /** The response is over (complete, ended, cancelled, broken off), or the handler made none. */
  end(): void {
    this.isAnswered = true;
    this.watcher?.responseChanged();
  }
}
