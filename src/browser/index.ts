import {
  CONFLICT,
  DELAY_MS,
  JITTER,
  LEAST_RETRY_AFTER_MS,
  LONGEST_DELAY_MS,
  LONGEST_RETRY_AFTER_MS,
  LONGEST_TIMER_MS,
  SERVER_ERROR,
  TIMEOUT_MS,
  UNAUTHORIZED,
} from "./bounds.ts";
import { digestOf, forget, idOf, kept, owners, protections, unused } from "./ids.ts";

export { forget, idOf } from "./ids.ts";
export {
  type FormProtection,
  type ProtectableForm,
  type ProtectFormOptions,
  protectForm,
} from "./protect-form.ts";

/** The options that {@link submitOnce} adds to those of `fetch`. */
export interface SubmitOnceOptions {
  /** The order's name: `cart:17`; on a server, add the user. @defaultValue the request's content */
  readonly name?: string | undefined;
  /**
   * The page's own id of the order, such as cart and version: in two tabs, it means one order.
   * @defaultValue the header `Idempotency-Key`, or `idOf(name)`
   */
  readonly id?: string | undefined;
  /** How long an answer is awaited, over all tries. @defaultValue 30 000 */
  readonly timeoutMs?: number | undefined;
  /** Called before each wait, so that the page can show it. */
  readonly onWaiting?: ((waiting: Waiting) => void) | undefined;
}

/** Why and when a request is sent again. */
export interface Waiting {
  /**
   * `network`: no answer. `in_flight`: this order or another one of the user is being placed, or
   * has just ended. `unavailable`: another refusal that passes.
   */
  readonly reason: "network" | "in_flight" | "unavailable";
  /** How often the request was sent. */
  readonly tries: number;
  /** The time until the next try, in milliseconds. */
  readonly delayMs: number;
  /** The id with which the request is sent. */
  readonly id: string;
}

/** The options of `fetch`, and `once`. */
export type SubmitOnceInit = RequestInit & { readonly once?: SubmitOnceOptions | undefined };

/** No final answer came: **the order may be placed**. To ask again with the same id, call again. */
export class SubmitUnansweredError extends Error {
  override readonly name = "SubmitUnansweredError";
  readonly code = "SUBMIT_UNANSWERED";
  declare readonly id: string;
  declare readonly tries: number;
}

/** Joins a request under way, which is repeated until it is answered or all callers have left. */
type Join = (
  onWaiting: SubmitOnceOptions["onWaiting"],
  of: Request,
  timeoutMs: number,
) => Promise<Response>;

/** The requests under way, by id and content. */
const flights = new Map<string, Join>();

/**
 * `fetch` for one order. Sends the order's id as `Idempotency-Key`. Sends the request again, with
 * the same id and body, after a lost connection, 408, 425, 429, 502, 503, 504, 520 to 529, 409
 * `idempotency_in_flight` and `submit_contended`, and a 409 with `Retry-After` and no code, but not
 * after 503 `submit_lock_lost`. Behind a guard with `idempotency`, all tries are one order;
 * elsewhere, each try is an order. Calls with one id, method, URL, content headers and body share a
 * request under way; other content has another id, unless the page gives a name or an id. The id is
 * kept over reloads, until 2xx, 3xx, or a 4xx with no earlier try in doubt; 401, and the guard's
 * refusal of an order that may exist, keep the id. Disable the button for that time: without an id
 * from the page, a click after a 2xx is another order. The promise resolves after the body's end.
 * Pass a referrer and a `FormData` in `init`: a `Request` loses the one, and Safari 26 cannot read
 * the other from it where a script has made one of its files.
 * @example
 * ```ts
 * const body = JSON.stringify({ cart: 7 });
 * const answer = await submitOnce("/orders", { method: "POST", body });
 * ```
 *
 * @throws SubmitUnansweredError without a final answer in time, or aborted after something was sent,
 *   or where `onWaiting` of a caller throws.
 * @throws TypeError for `no-cors`, a body that cannot be sent twice, an invalid `timeoutMs` or URL.
 * @throws the signal's reason where the signal was aborted before anything was sent.
 */
export async function submitOnce(
  input: string | URL | Request,
  { once = {}, ...init }: SubmitOnceInit = {},
): Promise<Response> {
  const timeoutMs = once.timeoutMs ?? TIMEOUT_MS;
  const from = ((input as Request).clone?.() ?? input) as Request;
  // The body may be a stream, which can be read once, and which some browsers do not send.
  init.body ??= from.body && (await from.blob());
  // biome-ignore lint/suspicious/noExplicitAny: a stream, or a generator, which browsers send as a text.
  const body = init.body as any;
  // Throws for wrong arguments now: a rejection of `fetch` would look like a lost connection.
  const request = new Request(from, init);
  const { headers, mode, url } = request;
  if (
    !(timeoutMs >= 0) ||
    mode === "no-cors" ||
    body?.getReader ||
    body?.next ||
    !/^http/.test(url)
  ) {
    throw new TypeError(`${url}: timeoutMs ${timeoutMs}, mode ${mode} or a stream`);
  }
  const type = `${[...headers].filter(([name]) => /^content-/.test(name))}`;
  // Leave the boundary out of the content: it differs each time that a form is serialized.
  const [, boundary = "-"] = type.split("boundary=");
  // Safari 26 cannot read a request with a file that a script has made.
  const form =
    body?.getAll &&
    new Blob([...body].flatMap(([key, value]) => [[key, value.size, value.name], value]));
  let text = await (form ?? request.clone()).text();
  // Each byte that is not UTF-8 has become U+FFFD, so two different bodies could be one content.
  if (text.includes("\uFFFD")) {
    text = new TextDecoder("latin1").decode(await (form ?? request.clone()).arrayBuffer());
  }
  const content = (request.method + url + type + text).replaceAll(boundary, "-");
  if (request.signal.aborted) throw request.signal.reason;
  const name = once.name ?? digestOf(content);
  const id = once.id || headers.get("Idempotency-Key") || idOf(name);
  const key = id + content;
  headers.set("Idempotency-Key", id);
  return (flights.get(key) ?? flightOf(request, init, key, id, name))(
    once.onWaiting,
    request,
    timeoutMs,
  );
}

function flightOf(
  request: Request,
  init: RequestInit,
  key: string,
  id: string,
  name: string,
): Join {
  const callers = new Map<unknown, SubmitOnceOptions["onWaiting"]>();
  const stop = new AbortController();
  let tries = 0;
  let cause: unknown;
  let wait: ReturnType<typeof setTimeout> | undefined;

  const join: Join = (onWaiting, of, timeoutMs) =>
    new Promise((resolve, reject) => {
      const leave = (cause: unknown) => {
        clearTimeout(timer);
        reject(
          Object.assign(new SubmitUnansweredError("the order may be placed"), { cause, id, tries }),
        );
        // Abort only a request under way: after its answer, an abort would break off the body.
        if (callers.delete(leave) && !callers.size && flights.delete(key)) {
          clearTimeout(wait);
          stop.abort();
        }
      };
      const timer = setTimeout(() => leave(cause), Math.min(timeoutMs, LONGEST_TIMER_MS));
      callers.set(leave, onWaiting);
      // Node drops a signal together with its request, so keep the request.
      of.signal.addEventListener("abort", () => leave(of.signal.reason));
      answer.then((response) => leave(resolve(response.clone())), leave);
    });

  /** Resolves with the final answer. If all callers leave first, rejects or never settles. */
  const ask = async () => {
    for (;;) {
      tries++;
      let reason: Waiting["reason"] = "network";
      let delayMs = Math.min(LONGEST_DELAY_MS, DELAY_MS * 2 ** tries);
      try {
        // A request that is made from another one loses its referrer, so name that again. And keep
        // the form: Safari sends an empty file once the page has dropped it.
        const response = await fetch(request.clone(), {
          ...init,
          signal: stop.signal,
          headers: request.headers,
          body: null,
        });
        const { headers, status } = response;
        // A connection that is lost before the end of the body is a lost answer.
        const body = await response.clone().text();
        const given = headers.get("Retry-After") as string;
        // Where CORS hides the header, read the code in the body, unless the answer is a success.
        const code =
          headers.get("Submit-Lock-Code") ??
          ((status < 400 || /"code": ?"(\w+)"/.exec(body)?.[1]) as string);
        if (/^idem\w+_flight$|^submit_contended/.test(code)) reason = "in_flight";
        // After a lost lease the order may be placed, so only a person may send it again.
        // Cloudflare's own statuses begin at 520.
        else if (
          !/^submit_lock_lost/.test(code) &&
          (/408|42[59]|50[234]|52./.test(status as unknown as string) ||
            (status === CONFLICT && given && !code))
        ) {
          reason = "unavailable";
        } else {
          // A refusal may come from code before the guard, and a redirect leads to another page:
          // neither tells about an earlier try. A replayed answer is the answer to an earlier try.
          if (status !== UNAUTHORIZED) {
            const isSure = unused.delete(id) || headers.get("Idempotent-Replayed");
            const isRefused = isSure && !response.redirected && status < SERVER_ERROR;
            // Keep the id at a refusal `idempotency_…` of the guard: the order may exist.
            if ((status < 400 || isRefused) && !/^idem/.test(code)) {
              if (kept(name) === id) forget(name);
              for (const [issued, owner] of owners) {
                if (key.includes(issued)) protections.get(owner.deref() as object)?.renew();
              }
            }
          }
          flights.delete(key);
          return response;
        }
        cause = response;
        // Compare a date with the server's `Date`, because the customer's clock may be wrong.
        const givenMs =
          Math.ceil(given as never) * 1_000 ||
          Date.parse(given) - Date.parse(headers.get("Date") as string) ||
          delayMs;
        delayMs = Math.min(Math.max(givenMs, LEAST_RETRY_AFTER_MS), LONGEST_RETRY_AFTER_MS);
      } catch (error) {
        cause = error;
      }
      unused.delete(id);
      if (stop.signal.aborted) throw cause;
      delayMs *= 1 + Math.random() * JITTER;
      for (const [, onWaiting] of callers) onWaiting?.({ reason, delayMs, id, tries });
      await new Promise((resolve) => {
        wait = setTimeout(resolve, delayMs);
      });
    }
  };
  // If other content with this id is under way, it may place an order, so a refusal keeps the id.
  for (const [each] of flights) if (each.includes(id)) unused.delete(id);
  flights.set(key, join);
  const answer = ask();
  return join;
}
