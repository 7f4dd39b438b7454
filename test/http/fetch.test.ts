import { getEventListeners, once } from "node:events";
import { createServer } from "node:http";
import { type AddressInfo, connect } from "node:net";
import { Readable } from "node:stream";
import { setTimeout as sleep } from "node:timers/promises";
import { describe, expect, onTestFinished, test, vi } from "vitest";
import {
  leaseOf,
  type SubmitGuardOptions,
  submissionOf,
  submitGuard,
} from "../../src/fetch/index.ts";
import { InvalidOptionError, MemoryStore, SubmitLock } from "../../src/index.ts";
import { until } from "../support/until.ts";
import { gate } from "./gate.ts";
import { canAcquire } from "./shop.ts";

function open(options: Partial<SubmitGuardOptions> = {}) {
  const lock = new SubmitLock({ store: new MemoryStore(), maxHoldMs: 60_000 });
  onTestFinished(() => lock.close({ timeoutMs: 0 }));
  const guard = submitGuard({
    lock,
    userId: ({ headers }) => headers.get("x-user"),
    idempotency: {},
    ...options,
  });
  const isFree = () => canAcquire(lock, "42");
  return {
    guard,
    lock,
    isFree,
    whenFree: () => until(isFree, { what: "a free lock" }),
  };
}

interface Sent extends RequestInit {
  readonly path?: string;
}

/** One submit of the user. */
function order({ path = "/orders", headers, ...init }: Sent = {}): Request {
  return new Request(`http://shop.test${path}`, {
    method: "POST",
    body: JSON.stringify({ cart: 7 }),
    ...init,
    headers: {
      "content-type": "application/json",
      "x-user": "42",
      "idempotency-key": "a-key",
      ...(headers as Record<string, string>),
    },
  });
}

async function codeOf(response: Response): Promise<unknown> {
  return ((await response.json()) as { code: unknown }).code;
}

describe("plain requests", () => {
  const proxied = (set?: ProxyHandler<Request>["set"]) => (request: Request) =>
    new Proxy(request, {
      get(target, name) {
        const value = Reflect.get(target, name);
        return typeof value === "function" ? value.bind(target) : value;
      },
      ...(set && { set }),
    });

  test.each<[string, made: (request: Request) => Request]>([
    ["a request", (request) => request],
    ["a frozen request", Object.freeze],
    ["a proxy", proxied()],
    ["a proxy that ignores new properties", proxied(() => false)],
    [
      "a proxy that refuses new properties",
      proxied(() => {
        throw new TypeError("read only");
      }),
    ],
  ])("%s has a lease and a submission, also behind its answer", async (_what, made) => {
    const { guard, isFree } = open();
    const request = made(order());
    expect(leaseOf(request)).toBeUndefined();
    expect(submissionOf(request)).toBeUndefined();
    const seen: unknown[] = [];
    const post = guard.protect((its) => {
      seen.push(leaseOf(its)?.key, typeof submissionOf(its)?.id);
      return new Response("placed");
    });
    expect((await post(request)).status).toBe(200);
    expect(seen).toEqual(["lock:submit:42", "string"]);
    expect(leaseOf(request)?.key).toBe("lock:submit:42");
    expect(submissionOf(request)?.id).toBeTypeOf("string");
    expect(leaseOf(order())).toBeUndefined();
    expect(await isFree()).toBe(true);
  });

  test("another copy of the package, as in another bundle, finds them too", async () => {
    vi.resetModules();
    const copy = await import("../../src/fetch/index.ts");
    expect(copy.submissionOf).not.toBe(submissionOf);
    const { guard, lock } = open();
    const found = (its: Request) => [copy.leaseOf(its)?.key, copy.submissionOf(its)?.id];
    const seen = await guard.protect((its) => Response.json(found(its)))(order());
    const id = expect.stringMatching(/^[\w-]{22}$/);
    expect(await seen.json()).toEqual([lock.keyFor("42"), id]);
  });

  test.each<[inner: string, more: Partial<SubmitGuardOptions>]>([
    ["that skips the request", { skip: () => true }],
    ["of another lock without submissions", { idempotency: undefined }],
  ])("an inner guard %s leaves the outer one's submission", async (_inner, more) => {
    const outer = open().guard;
    const { guard: inner } = open(more);
    const seen = await outer.protect(
      inner.protect((its) => Response.json([leaseOf(its)?.key, submissionOf(its)?.id])),
    )(order());
    const id = expect.stringMatching(/^[\w-]{22}$/);
    expect(await seen.json()).toEqual(["lock:submit:42", id]);
  });

  test("an inner guard's own cooldown is refused, and one that is the outer's is not", async () => {
    const { lock } = open();
    const post = (cooldownMs: number) => {
      const inner = open({ lock, cooldownMs, idempotency: undefined });
      const outer = open({ lock, cooldownMs: 5 }).guard;
      const handler = outer.protect(inner.guard.protect(() => new Response("placed")));
      return handler(order({ headers: { "idempotency-key": `${cooldownMs}` } }));
    };
    const said = "cooldownMs: expected this option on the outermost";
    await expect(post(7)).rejects.toThrow(said);
    expect((await post(5)).status).toBe(200);
  });

  test("a quoted key with a comma and a space is refused: it may have been two lines", async () => {
    const { guard } = open();
    const post = guard.protect(() => new Response("placed"));
    const two = await post(order({ headers: { "idempotency-key": '"a, b"' } }));
    expect([two.status, await codeOf(two)]).toEqual([400, "idempotency_key_invalid"]);
    for (const key of ['"a"', '"cart,7"']) {
      expect((await post(order({ headers: { "idempotency-key": key } }))).status).toBe(200);
    }
  });

  test("an answer of the application's own must be a Response", async () => {
    const onAnonymous = (_request: Request, { problem }: { problem: { code: string } }) =>
      Response.json({ mine: problem.code }, { status: 401 });
    const mine = open({ onAnonymous }).guard.protect(() => new Response("never"));
    const anonymous = { headers: { "x-user": "" } };
    expect(await (await mine(order(anonymous))).json()).toEqual({ mine: "submit_anonymous" });
    const none = open({ onAnonymous: (() => undefined) as never });
    const post = none.guard.protect(() => new Response("never"));
    await expect(post(order(anonymous))).rejects.toThrow(InvalidOptionError);
  });
});

describe("the body that is compared", () => {
  const placed = () => new Response("placed");

  test("a body that was read before the guard is an error of the application", async () => {
    const post = open().guard.protect(placed);
    const request = order();
    await request.text();
    await expect(post(request)).rejects.toMatchObject({
      code: "SUBMIT_LOCK_NO_FINGERPRINT",
      status: 500,
    });
  });

  test("a request whose clone is no copy is refused, and its body is left to the handler", async () => {
    const ofSameBody = (request: Request) =>
      Object.defineProperty(order(), "body", { value: request.body });
    // As of a proxy whose `body` is a new proxy each time, over one stream.
    const ofSameStream = ({ body }: Request) => ({ body: { getReader: () => body?.getReader() } });
    for (const copy of [(request: Request) => request, ofSameBody, ofSameStream]) {
      const request = order();
      Object.defineProperty(request, "clone", { value: () => copy(request) });
      const post = open().guard.protect(placed);
      await expect(post(request)).rejects.toMatchObject({
        code: "SUBMIT_LOCK_NO_FINGERPRINT",
        message: expect.stringContaining("request.clone() returns no copy"),
      });
      expect(request.bodyUsed).toBe(false);
      expect(request.body?.locked).toBe(false);
    }
  });

  test("a request that gets another signal when it is cloned keeps no listener on its first one", async () => {
    const request = order();
    const [first, second] = [new AbortController().signal, new AbortController().signal];
    let isCloned = false;
    const { clone } = request;
    Object.defineProperties(request, {
      signal: { get: () => (isCloned ? second : first) },
      clone: {
        value: () => {
          isCloned = true;
          return clone.call(request);
        },
      },
    });
    const { guard, whenFree } = open();
    await (await guard.protect(placed)(request)).text();
    await whenFree();
    expect(isCloned).toBe(true);
    expect([first, second].map((each) => getEventListeners(each, "abort").length)).toEqual([0, 0]);
  });

  test("one that cannot be compared is answered with a page where the client prefers one", async () => {
    const headers = { accept: "text/html" };
    const sent = order({ body: new Uint8Array(1_048_577), headers } as Sent);
    const page = await open().guard.protect(placed)(sent);
    expect([page.status, page.headers.get("content-type")]).toEqual([
      413,
      "text/html; charset=utf-8",
    ]);
  });

  test.each([true, false])(
    "one of more than 1 MiB is a 413, announced: %s",
    async (isAnnounced) => {
      const large = new Uint8Array(1_048_577);
      const body = isAnnounced ? large : new Blob([large]).stream();
      const headers = isAnnounced ? { "content-length": `${large.length}` } : {};
      const duplex = "half" as const;
      const sent = () => order({ body, headers, duplex } as Sent);
      const refused = await open().guard.protect(placed)(sent());
      expect([refused.status, await codeOf(refused)]).toEqual([413, "SUBMIT_LOCK_NO_FINGERPRINT"]);
      if (!isAnnounced) return;
      const { guard } = open({
        idempotency: { fingerprint: () => "of my own" },
      });
      expect((await guard.protect(placed)(sent())).status).toBe(200);
    },
  );

  test("JSON that is nested too deeply is the client's fault", async () => {
    const body = `${"[".repeat(100)}${"]".repeat(100)}`;
    expect((await open().guard.protect(placed)(order({ body }))).status).toBe(422);
  });
});

describe("streams", () => {
  /** A stream of so many "a", and a "b" behind a gate, and what became of it. */
  function twoParts(before = 1) {
    const over = gate();
    const seen = { cancelled: false };
    const parts = async function* () {
      try {
        for (let part = 0; part < before; part++) yield new TextEncoder().encode("a");
        await over.opened;
        yield new TextEncoder().encode("b");
      } finally {
        seen.cancelled = true;
      }
    };
    const iterator = parts();
    const stream = new ReadableStream({
      async pull(controller) {
        const { done, value } = await iterator.next();
        if (done) controller.close();
        else controller.enqueue(value);
      },
      async cancel() {
        await iterator.return();
      },
    });
    return { over, seen, stream };
  }

  test("one that is read to its end holds the lock until then, and is repeated", async () => {
    const { guard, isFree, whenFree } = open();
    const { over, stream } = twoParts();
    const post = guard.protect(() => new Response(stream as never));
    const first = await post(order());
    expect(await isFree()).toBe(false);
    over.open();
    expect(await first.text()).toBe("ab");
    await whenFree();
    expect(await (await post(order())).text()).toBe("ab");
  });

  test.each([
    ["", false],
    [", by the platform and for a client that has left,", true],
  ])("one that is cancelled%s frees the lock, and cannot be repeated", async (_by, hasLeft) => {
    const { guard, isFree, whenFree } = open();
    const { over, seen, stream } = twoParts();
    const post = guard.protect(() => new Response(stream as never));
    const left = new AbortController();
    const first = await post(order({ signal: left.signal }));
    if (hasLeft) left.abort();
    const cancelled = first.body?.cancel();
    await sleep(20);
    // The generator is still at work.
    expect(await isFree()).toBe(false);
    over.open();
    await cancelled;
    await whenFree();
    expect(seen.cancelled).toBe(true);
    expect(await codeOf(await post(order()))).toBe("idempotency_answer_unavailable");
  });

  test("one whose client leaves is cancelled, though nobody reads it", async () => {
    const { guard, whenFree } = open();
    const { over, stream } = twoParts();
    const left = new AbortController();
    const post = guard.protect(() => new Response(stream as never));
    await post(order({ signal: left.signal }));
    over.open();
    left.abort();
    await whenFree();
    expect(await codeOf(await post(order()))).toBe("idempotency_answer_unavailable");
  });

  test("one whose client left before it came can be cancelled by the server", async () => {
    const { guard, whenFree } = open();
    const left = new AbortController();
    let isCancelled = false;
    const post = guard.protect(() => {
      left.abort();
      const cancel = () => {
        isCancelled = true;
      };
      return new Response(new ReadableStream({ cancel }));
    });
    const first = await post(order({ signal: left.signal }));
    await whenFree();
    await sleep(20);
    // Servers that see a closed connection, such as srvx, call this and catch nothing.
    await first.body?.cancel();
    expect(isCancelled).toBe(true);
    expect(await codeOf(await post(order()))).toBe("idempotency_answer_unavailable");
  });

  test("one that a server goes on reading after its client has left is kept as a whole", async () => {
    const { guard, whenFree } = open();
    const { over, stream } = twoParts();
    const left = new AbortController();
    const post = guard.protect(() => new Response(stream as never));
    const first = await post(order({ signal: left.signal }));
    const read = first.text();
    await sleep(20);
    left.abort();
    await sleep(20);
    over.open();
    // Many servers do not catch the error of a body: it would end the process.
    expect(await read).toBe("ab");
    await whenFree();
    expect(await (await post(order())).text()).toBe("ab");
  });

  test("one whose first parts are read slowly after its client has left is not cancelled", async () => {
    const { guard, whenFree } = open();
    const { over, stream } = twoParts(25);
    const left = new AbortController();
    const post = guard.protect(() => new Response(stream as never));
    const first = await post(order({ signal: left.signal }));
    left.abort();
    const reader = (first.body as ReadableStream<Uint8Array>).getReader();
    // For longer than a stream may stay unread.
    for (let part = 0; part < 25; part++) {
      await reader.read();
      await sleep(60);
    }
    over.open();
    expect(await reader.read()).toMatchObject({ done: false });
    await whenFree();
    expect(await (await post(order())).text()).toBe(`${"a".repeat(25)}b`);
  });

  test("one whose server stops at the last byte frees the lock", async () => {
    const { guard, whenFree } = open();
    const { over, stream } = twoParts();
    const post = guard.protect(() => new Response(stream as never));
    const reader = ((await post(order())).body as ReadableStream<Uint8Array>).getReader();
    over.open();
    for (const part of ["a", "b"]) {
      expect(Buffer.from((await reader.read()).value ?? []).toString()).toBe(part);
    }
    await whenFree();
    expect(await (await post(order())).text()).toBe("ab");
  });

  test("one that is read after its cancel fails: it is not taken for a whole one", async () => {
    const { guard, whenFree } = open();
    const { over, stream } = twoParts();
    const left = new AbortController();
    const post = guard.protect(() => new Response(stream as never));
    const first = await post(order({ signal: left.signal }));
    over.open();
    left.abort();
    await whenFree();
    await expect(first.text()).rejects.toThrow("the client has left");
    expect(await codeOf(await post(order()))).toBe("idempotency_answer_unavailable");
  });

  test("one that fails behind the head, which a server may have sent, is an answer", async () => {
    const { guard, whenFree } = open();
    const goOn = gate();
    const post = guard.protect(() => {
      const pull = () => goOn.opened.then(() => Promise.reject(new Error("theirs")));
      return new Response(new ReadableStream({ pull }), { status: 201 });
    });
    const first = await post(order());
    goOn.open();
    await expect(first.text()).rejects.toThrow("theirs");
    await whenFree();
    expect(await codeOf(await post(order()))).toBe("idempotency_answer_unavailable");
  });

  test("a server that catches no error of a body outlives a client that leaves", async () => {
    const { guard, whenFree } = open();
    const { over, stream } = twoParts();
    const post = guard.protect(() => new Response(stream as never));
    const bodies: Readable[] = [];
    const errors: unknown[] = [];
    const server = createServer(async (_req, res) => {
      const left = new AbortController();
      res.once("close", () => left.abort());
      const { body } = await post(order({ signal: left.signal }));
      const readable = Readable.fromWeb(body as never);
      bodies.push(readable.on("error", (error) => errors.push(error)));
      readable.pipe(res);
    }).listen(0, "127.0.0.1");
    await once(server, "listening");
    const client = connect((server.address() as AddressInfo).port, "127.0.0.1");
    client.write("POST / HTTP/1.1\r\nHost: shop\r\n\r\n");
    await once(client, "data");
    client.destroy();
    await until(() => bodies[0]?.listenerCount("data") === 0, { what: "the end of the pipe" });
    over.open();
    await whenFree();
    await sleep(20);
    expect(errors).toEqual([]);
    server.close();
  });

  test("one that answers HEAD is cancelled: its body is never read", async () => {
    const { guard, isFree, whenFree } = open();
    const { over, stream } = twoParts();
    const post = guard.protect(() => new Response(stream, { headers: { "x-order": "7" } }));
    const { body, headers } = await post(order({ method: "HEAD", body: null }));
    expect([body, headers.get("x-order"), await isFree()]).toEqual([null, "7", false]);
    over.open();
    await whenFree();
  });

  test("one of texts is sent as their bytes, as Hono's server takes them", async () => {
    const stream = ReadableStream.from(["é€"]);
    const post = open().guard.protect(() => new Response(stream as never));
    expect(await (await post(order())).text()).toBe("é€");
  });

  const read = (status: number) => {
    const response = new Response("a", { status });
    void response.text();
    return response;
  };

  test.each<[what: string, make: () => Response, runs: number]>([
    // Such as Hono's own, whose body is that of another one.
    [
      "a proxy is sent as it is, and not run again",
      // Node 24 reads the members of a Response from the Response itself alone.
      () => new Proxy(new Response("a"), { get: (target, name) => Reflect.get(target, name) }),
      1,
    ],
    ["what is no Response frees its user, and its work is not run again", () => 7 as never, 1],
    ["a page of h3 is no Response, either", () => ({ status: 201, body: "<p>" }) as never, 1],
    ["nor is nothing at all", () => undefined as never, 1],
    ["what says that it has failed is run again: h3", () => ({ status: 402 }) as never, 2],
    ["what says that it has failed is run again: Elysia", () => ({ code: 402 }) as never, 2],
    [
      "what says that it has failed is run again: React Router's data()",
      () => ({ type: "DataWithResponseInit", data: {}, init: { status: 402 } }) as never,
      2,
    ],
    ["its data() without a status is not", () => ({ data: {}, init: null }) as never, 1],
    [
      "what says that it has failed is run again: an error of h3",
      () => Object.assign(new Error("no stock"), { statusCode: 422 }) as never,
      2,
    ],
    ["one whose body was read, as for a log, is not run again", () => read(201), 1],
    ["one whose body was read is run again if it has failed", () => read(402), 2],
    [
      "so is one of a class with a code of its own",
      () => Object.assign(read(402), { code: "declined" }),
      2,
    ],
    ["a code of the order's own is no failure", () => ({ order: 7, code: 451 }) as never, 1],
    ["nor is one of six digits", () => ({ order: 7, code: "483921" }) as never, 1],
    ["nor is a status of the order's own", () => ({ order: 7, status: 1_000 }) as never, 1],
    [
      "one that fails at once is no answer",
      () => new Response(new ReadableStream({ pull: () => Promise.reject(new Error("theirs")) })),
      2,
    ],
  ])("%s", async (_what, make, expected) => {
    const { guard, whenFree } = open();
    let runs = 0;
    const post = guard.protect(() => {
      runs++;
      return make();
    });
    await post(order());
    await whenFree();
    await post(order());
    expect(runs).toBe(expected);
  });

  const location = "/orders/7?from=a;b";
  /** What the redirects of frameworks throw. */
  const redirects: [string, thrown: () => unknown, status: number][] = [
    ["React Router", () => new Response(null, { status: 303, headers: { location } }), 303],
    ["SvelteKit", () => ({ status: 303, location }), 303],
    ["SvelteKit, of a status without a meaning of its own", () => ({ status: 300, location }), 300],
    [
      "Next.js",
      () =>
        Object.assign(new Error("NEXT_REDIRECT"), {
          digest: `NEXT_REDIRECT;replace;${location};307;`,
        }),
      307,
    ],
    [
      "Hono, in an HTTPException",
      () =>
        Object.assign(new Error("303"), {
          status: 303,
          res: new Response(null, { status: 303, headers: { location } }),
        }),
      303,
    ],
  ];
  test.each(redirects)(
    "a redirect that is thrown is an answer: %s",
    async (_what, thrown, status) => {
      const { guard, whenFree } = open();
      let runs = 0;
      const goOn = gate();
      const redirect = thrown();
      const post = guard.protect(async () => {
        runs++;
        await goOn.opened;
        throw redirect;
      });
      const first = post(order());
      const waiting = post(order());
      goOn.open();
      await expect(first).rejects.toBe(redirect);
      await whenFree();
      for (const repeat of [await waiting, await post(order())]) {
        expect([repeat.status, repeat.headers.get("location")]).toEqual([status, location]);
      }
      expect(runs).toBe(1);
    },
  );

  test.each([
    ["thrown", true],
    ["returned", false],
  ])(
    "a redirect whose framework sets its Location later is not repeated without it: %s",
    async (_how, isThrown) => {
      const { guard, whenFree } = open();
      let runs = 0;
      const post = guard.protect(() => {
        runs++;
        const response = Object.assign(new Response(null, { status: 307 }), {
          options: { to: "/" },
        });
        if (isThrown) throw response;
        return response;
      });
      const { status } = await post(order()).catch((thrown) => thrown as Response);
      expect(status).toBe(307);
      await whenFree();
      const repeat = await post(order());
      expect([repeat.status, repeat.headers.get("submit-lock-code")]).toEqual([
        409,
        "idempotency_answer_unavailable",
      ]);
      expect(runs).toBe(1);
    },
  );

  const unreadable = new Proxy(
    {},
    {
      get() {
        throw new Error("theirs");
      },
    },
  );

  test.each<[string, thrown: () => unknown]>([
    ["an error", () => new Error("no stock")],
    ["an error with a status", () => Object.assign(new Error("no stock"), { status: 422 })],
    ["a Response that is no redirect", () => new Response("no stock", { status: 422 })],
    ["an error whose members cannot be read", () => unreadable],
    ["a Response of a provider's cache", () => new Response(null, { status: 304 })],
    ["an error with a status of 300", () => ({ status: 300, headers: new Headers({ a: "1" }) })],
    ["an error with headers of its own", () => ({ status: 302, headers: [1] })],
    ["nothing at all", () => undefined],
  ])("%s that is thrown is none, and a repeat runs", async (_what, thrown) => {
    const { guard, whenFree } = open();
    let runs = 0;
    const post = guard.protect(() => {
      runs++;
      throw thrown();
    });
    for (const run of [1, 2]) {
      const answered = post(order()).then(
        () => true,
        () => false,
      );
      expect(await answered).toBe(false);
      await whenFree();
      expect(runs).toBe(run);
    }
  });

  test("one that nobody reads or cancels holds the lock", async () => {
    const { guard, isFree } = open();
    const post = guard.protect(() => new Response(twoParts().stream));
    await post(order());
    await sleep(50);
    expect(await isFree()).toBe(false);
  });
});

describe("waitUntil", () => {
  test("is given the release or the record, with the arguments of the handler", async () => {
    const given: unknown[][] = [];
    const { guard, isFree } = open({ waitUntil: (...args) => void given.push(args) });
    const post = guard.protect((_request, _context: object) => new Response("placed"));
    const request = order();
    const context = {};
    await post(request, context);
    expect(given).toEqual([[expect.any(Promise), request, context]]);
    await given[0]?.[0];
    expect(await isFree()).toBe(true);
  });

  test("is given the end of a stream before the response is sent", async () => {
    const given: Promise<unknown>[] = [];
    const { guard, isFree } = open({ waitUntil: (promise) => void given.push(promise) });
    const over = gate();
    const stream = new ReadableStream({
      async pull(controller) {
        await over.opened;
        controller.close();
      },
    });
    const post = guard.protect(() => new Response(stream as never));
    const response = await post(order());
    expect(given).toHaveLength(1);
    over.open();
    await response.text();
    await given[0];
    expect(await isFree()).toBe(true);
  });

  test("that fails costs neither the answer nor the release", async () => {
    const { guard, whenFree } = open({ waitUntil: () => Promise.reject(new Error("no context")) });
    expect((await guard.protect(() => new Response("placed"))(order())).status).toBe(200);
    await whenFree();
  });

  test("must be a function, and so must a handler", () => {
    expect(() => open({ waitUntil: 7 as never })).toThrow(InvalidOptionError);
    expect(() => open().guard.protect(7 as never)).toThrow(InvalidOptionError);
  });
});
