import { afterAll, afterEach, beforeAll, describe, expect, onTestFinished, test, vi } from "vitest";
import { collectGarbage } from "../../support/garbage.ts";
import { Page, TabStorage } from "../../support/page.ts";
import {
  type Answer,
  brokenOff,
  lost,
  ScriptedServer,
  type Step,
  silent,
} from "../../support/scripted-server.ts";
import { until } from "../../support/until.ts";

type Args = Parameters<Page["submitOnce"]>;
const uuid = /^[0-9a-f]{8}-[0-9a-f]{4}-4[0-9a-f]{3}-[89ab][0-9a-f]{3}-[0-9a-f]{12}$/;
const problem = (code: string) => ({ title: "…", code });
const coded = (code: string) => ({ "submit-lock-code": code });
const inFlight: Answer = [409, problem("idempotency_in_flight")];
const order = { method: "POST", body: '{"cart":17}', headers: { "content-type": "text/plain" } };

let server: ScriptedServer;
const pages = new Set<Page>();
beforeAll(async () => {
  server = await ScriptedServer.start();
});
afterAll(() => server.close());
afterEach(() => {
  for (const page of pages) page.close();
  pages.clear();
});

/** Its pauses are short, whatever they were asked for. */
function openPage(options: ConstructorParameters<typeof Page>[0] = {}): Page {
  const page = new Page({ speed: 50, storage: new TabStorage(), ...options });
  pages.add(page);
  return page;
}

/** The ids of an order that is answered by these steps, and of the next one. */
async function idsOver(
  steps: (Answer | Step)[],
  init: RequestInit = {},
): Promise<(string | undefined)[]> {
  const { submitOnce } = openPage();
  server.script(...steps);
  await submitOnce(`${server.url}/orders`, { ...order, ...init });
  await submitOnce(`${server.url}/orders`, order);
  return server.ids;
}

describe("an order", () => {
  test("is sent as by fetch, with a UUID as its id, and its answer is a Response", async () => {
    server.script();
    const answer = await openPage().submitOnce(`${server.url}/orders?x=1`, order);
    expect(answer.status).toBe(201);
    expect(await answer.json()).toEqual({ order: 1 });
    expect(server.received).toMatchObject([
      { method: "POST", path: "/orders?x=1", type: "text/plain", body: order.body },
    ]);
    expect(server.ids[0]).toMatch(uuid);
  });

  test("has an id also where there is no crypto", async () => {
    const { idOf } = openPage({ globals: { crypto: undefined } }).module;
    expect(idOf("cart:1")).toMatch(uuid);
    expect(idOf("cart:2")).not.toBe(idOf("cart:1"));
  });

  const passing: [string, Answer | Step][] = [
    ...[408, 425, 429, 502, 503, 504, 520, 521, 522, 523, 524].map((status): [string, Answer] => [
      `${status}`,
      [status],
    ]),
    ["409 idempotency_in_flight", inFlight],
    [
      "409 submit_contended, which another order of this user ends",
      [409, problem("submit_contended")],
    ],
    ...["idempotency_in_flight", "submit_contended"].flatMap((code): [string, Answer][] => [
      [
        `409 with the header ${code}, and a body of the shop's own`,
        [409, { error: "busy" }, coded(code)],
      ],
      [`200 with the header ${code}`, [200, { success: false }, coded(code)]],
    ]),
    ["409 with Retry-After and no code", [409, { error: "busy" }, { "retry-after": "1" }]],
    ["503 with another code", [503, problem("out_of_order")]],
    ["503 with a code like the guard's", [503, problem("connection_lost")]],
    ["a lost connection", lost],
    ["an answer that is broken off", brokenOff],
  ];
  test.each(passing)("is sent again after %s, with the same id and body", async (_name, step) => {
    const { submitOnce } = openPage();
    server.script(step, step);
    const answer = await submitOnce(`${server.url}/orders`, order);
    expect(await answer.json()).toEqual({ order: 3 });
    expect(new Set(server.ids).size).toBe(1);
    expect(server.received.map(({ body }) => body)).toEqual(Array(3).fill(order.body));
  });

  const finals: [next: "a new" | "the same", ...Answer][] = [
    ...[200, 201, 204, 400, 402, 403, 404, 409, 410, 413, 415, 422].map(
      (status): ["a new", ...Answer] => ["a new", status],
    ),
    ["a new", 409, { code: "cart_changed" }, { "retry-after": "1" }],
    ["the same", 409, problem("idempotency_answer_unavailable")],
    ["the same", 409, { error: "look" }, coded("idempotency_answer_unavailable")],
    ["the same", 422, problem("idempotency_conflict")],
    ["the same", 503, problem("out_of_order"), coded("submit_lock_lost")],
    ["the same", 503, problem("submit_lock_lost")],
    // Codes of the shop's own, of which some are like the guard's in part.
    ...["return_flight", "gift_container", "idempotency_in_flight", "submit_contended"].map(
      (code): ["a new", ...Answer] => ["a new", 201, { items: [{ code }], order: 1 }],
    ),
    ...["invalid_contact", "unsupported_content", "delivery_in_flight", "link_lost"].flatMap(
      (code): ["a new", ...Answer][] =>
        [400, 409, 422].map((status) => ["a new", status, { code }]),
    ),
    ...[401, 500, 501, 505].map((status): ["the same", ...Answer] => ["the same", status]),
  ];
  test.each(finals)(
    "is followed by %s id after the final answer %s %o",
    async (next, ...answer) => {
      const [first, second, ...more] = await idsOver([answer]);
      expect(more).toEqual([]);
      expect(second === first).toBe(next === "the same");
    },
  );

  const redirect: Answer = [303, undefined, { location: "/orders/17" }];
  test("behind a redirect keeps its id until its page is there", async () => {
    for (const redirectMode of ["follow", "manual"] as const) {
      const init = { redirect: redirectMode };
      const [first, ...others] = await idsOver([redirect, [200]], init);
      expect(others.at(-1)).not.toBe(first);
    }
    for (const status of [404, 500]) {
      const ids = (await idsOver([redirect, [status]])).filter((_id, at) => at !== 1);
      expect(ids[1]).toBe(ids[0]);
    }
  });
});

describe("the wait before the next try", () => {
  /** The delays for these answers, without those of the time bounds. */
  async function delays(...answers: Answer[]): Promise<number[]> {
    const page = openPage({ speed: 1e4 });
    server.script(...answers);
    await page.submitOnce(`${server.url}/orders`, { ...order, once: { timeoutMs: 1e9 } });
    return page.delays.filter((ms) => ms !== 1e9);
  }
  const within = (ms: number) => (delay: number) => delay >= ms && delay <= ms * 1.25;

  test("is 0.2 s, doubles to 3 s, and has jitter", async () => {
    const all = await delays(...Array<Answer>(7).fill([502]));
    const expected = [200, 400, 800, 1_600, 3_000, 3_000, 3_000];
    expect(all).toHaveLength(expected.length);
    for (const [at, ms] of expected.entries()) expect(all[at]).toSatisfy(within(ms));
    expect(new Set(all.slice(4)).size).toBeGreaterThan(1);
  });

  test("is what Retry-After says, in seconds or as a date by the server's clock", async () => {
    const date = "Sun, 06 Nov 1994 08:49:37 GMT";
    const headers = { "retry-after": "Sun, 06 Nov 1994 08:49:42 GMT", date };
    const past = { "retry-after": date, date: headers["retry-after"] };
    const all = await delays(
      [503, undefined, { "retry-after": "7" }],
      [503, undefined, headers],
      [429, undefined, { "retry-after": "0" }],
      [429, undefined, past],
      [503, undefined, { "retry-after": "soon" }],
      [503, undefined, { "retry-after": "1.5" }],
    );
    const expected = [7_000, 5_000, 200, 200, 3_000, 2_000];
    for (const [at, ms] of expected.entries()) expect(all[at]).toSatisfy(within(ms));
  });

  test("is not by a date that the page cannot compare with the server's clock", async () => {
    const withoutDate: Step = (res) => {
      res.sendDate = false;
      res.writeHead(503, { "retry-after": new Date(Date.now() + 9e6).toUTCString() }).end();
    };
    const page = openPage({ speed: 1e4 });
    server.script(withoutDate);
    await page.submitOnce(`${server.url}/orders`, { ...order, once: { timeoutMs: 1e9 } });
    expect(page.delays.find((ms) => ms !== 1e9)).toSatisfy(within(200));
  });

  test("is never so long that a timer would fire at once", async () => {
    const page = openPage({ speed: 1e7 });
    server.script([503, undefined, { "retry-after": "99999999999" }]);
    const once = { timeoutMs: Number.POSITIVE_INFINITY };
    await page.submitOnce(`${server.url}/`, { ...order, once }).catch(() => {});
    expect(page.delays).toHaveLength(2);
    for (const ms of page.delays) expect(ms).toBeLessThan(2 ** 31);
  });

  test("is told to the page, with its reason", async () => {
    const told: unknown[] = [];
    server.script(lost, inFlight, [503], [429]);
    const once = { onWaiting: (waiting: object) => told.push(waiting) };
    await openPage().submitOnce(`${server.url}/`, { ...order, once });
    const ofAll = { id: server.ids[0], delayMs: expect.any(Number) };
    expect(told).toEqual([
      { ...ofAll, reason: "network", tries: 1 },
      { ...ofAll, reason: "in_flight", tries: 2 },
      { ...ofAll, reason: "unavailable", tries: 3 },
      { ...ofAll, reason: "unavailable", tries: 4 },
    ]);
    for (const { delayMs } of told as { delayMs: number }[]) expect(delayMs).toBeGreaterThan(150);
  });
});

describe("without a final answer", () => {
  test("in time, it rejects with the id and the tries, and the next call asks again", async () => {
    const { module, submitOnce } = openPage({ speed: 1 });
    server.script([503], silent);
    const init = { ...order, once: { timeoutMs: 5_000 } };
    const error = await submitOnce(`${server.url}/orders`, init).catch((error) => error);
    expect(error).toBeInstanceOf(module.SubmitUnansweredError);
    expect(error).toMatchObject({
      name: "SubmitUnansweredError",
      code: "SUBMIT_UNANSWERED",
      id: server.ids[0],
      tries: 2,
    });
    expect(error.cause.status).toBe(503);
    await server.received[1]?.left;
    await submitOnce(`${server.url}/orders`, init);
    expect(server.received).toHaveLength(3);
    expect(new Set(server.ids).size).toBe(1);
  });

  test("a long Retry-After ends with the time", async () => {
    server.script([503, undefined, { "retry-after": "60" }]);
    const call = openPage({ speed: 1 }).submitOnce(`${server.url}/`, {
      ...order,
      once: { timeoutMs: 50 },
    });
    await expect(call).rejects.toMatchObject({ tries: 1, code: "SUBMIT_UNANSWERED" });
  });

  test("the cause is the last error where no answer came", async () => {
    const server = await ScriptedServer.start();
    const { url } = server;
    server.close();
    const init = { ...order, once: { timeoutMs: 5_000 } };
    const error = await openPage()
      .submitOnce(url, init)
      .catch((error) => error);
    expect(error.tries).toBeGreaterThan(1);
    expect(error.cause).toBeInstanceOf(TypeError);
  });

  test("aborted before, it rejects with the reason, and nothing is sent", async () => {
    server.script();
    const reason = new Error("the customer has left");
    const { submitOnce } = openPage();
    const signal = AbortSignal.abort(reason);
    const init = { ...order, signal };
    await expect(submitOnce(`${server.url}/`, init)).rejects.toBe(reason);
    await expect(submitOnce(new Request(`${server.url}/`, init))).rejects.toBe(reason);
    expect(server.received).toEqual([]);
  });

  test.each([
    ["a string", (url: string, init: RequestInit): Args => [url, init]],
    ["a Request", (url: string, init: RequestInit): Args => [new Request(url, init)]],
  ])("aborted after %s was sent, the order may be placed", async (_name, args) => {
    server.script(silent);
    const { submitOnce } = openPage({ speed: 1 });
    const leaving = new AbortController();
    const call = submitOnce(...args(`${server.url}/`, { ...order, signal: leaving.signal }));
    await until(() => server.received.length === 1, { what: "the order" });
    const reason = new Error("the customer has left");
    leaving.abort(reason);
    // At once, before `fetch` has noticed.
    const again = submitOnce(`${server.url}/`, order);
    await expect(call).rejects.toMatchObject({
      code: "SUBMIT_UNANSWERED",
      cause: reason,
      id: server.ids[0],
      tries: 1,
    });
    expect((await again).status).toBe(201);
    expect(new Set(server.ids).size).toBe(1);
    await server.received[0]?.left;
  });

  test("the signal of a Request does not count if `init.signal` is null", async () => {
    server.script();
    const request = new Request(`${server.url}/`, { ...order, signal: AbortSignal.abort() });
    expect((await openPage().submitOnce(request, { signal: null })).status).toBe(201);
  });

  test("aborted in a wait, nothing more is sent", async () => {
    server.script([503, undefined, { "retry-after": "0" }]);
    const leaving = new AbortController();
    const once = { onWaiting: () => leaving.abort() };
    const call = openPage().submitOnce(`${server.url}/`, {
      ...order,
      once,
      signal: leaving.signal,
    });
    await expect(call).rejects.toMatchObject({ tries: 1 });
    await new Promise((resolve) => setTimeout(resolve, 50));
    expect(server.received).toHaveLength(1);
  });

  test("because `onWaiting` threw, the order may be placed", async () => {
    server.script(lost);
    const error = new Error("a flaw of the page");
    const onWaiting = () => {
      throw error;
    };
    const { submitOnce } = openPage();
    const call = submitOnce(`${server.url}/`, { ...order, once: { onWaiting } });
    await expect(call).rejects.toMatchObject({ code: "SUBMIT_UNANSWERED", cause: error });
    await submitOnce(`${server.url}/`, order);
    expect(new Set(server.ids).size).toBe(1);
  });
});

describe("calls with other content", () => {
  const form = (
    size: string,
    file: string | Uint8Array<ArrayBuffer> = "photo",
    name = "image.jpg",
  ) => {
    const data = new FormData();
    data.set("size", size);
    data.set("file", new File([file], name));
    return data;
  };
  const others: [string, (url: string) => Args, (url: string) => Args][] = [
    ["body", (url) => [url, order], (url) => [url, { ...order, body: '{"cart":18}' }]],
    [
      "form",
      (url) => [url, { method: "POST", body: form("S") }],
      (url) => [url, { method: "POST", body: form("L") }],
    ],
    [
      "file of a form",
      (url) => [url, { method: "POST", body: form("S") }],
      (url) => [url, { method: "POST", body: form("S", "phot0") }],
    ],
    [
      "name of a form's file",
      (url) => [url, { method: "POST", body: form("S") }],
      (url) => [url, { method: "POST", body: form("S", "photo", "other.jpg") }],
    ],
    ["query", (url) => [`${url}?size=S`, order], (url) => [`${url}?size=L`, order]],
    ["method", (url) => [url, order], (url) => [url, { ...order, method: "PUT" }]],
    [
      "content type",
      (url) => [url, order],
      (url) => [url, { ...order, headers: { "content-type": "application/json" } }],
    ],
    [
      "content encoding",
      (url) => [url, order],
      (url) => [url, { ...order, headers: { ...order.headers, "content-encoding": "gzip" } }],
    ],
    [
      "byte that is not UTF-8",
      (url) => [url, { ...order, body: new Uint8Array([8, 0xc8, 1]) }],
      (url) => [url, { ...order, body: new Uint8Array([8, 0xc9, 1]) }],
    ],
    [
      "byte of a file of a form",
      (url) => [url, { method: "POST", body: form("S", new Uint8Array([0xff])) }],
      (url) => [url, { method: "POST", body: form("S", new Uint8Array([0xfe])) }],
    ],
    [
      "Request",
      (url) => [new Request(url, order)],
      (url) => [new Request(url, { ...order, body: "2" })],
    ],
  ];
  test.each(others)("are orders of their own: %s", async (_what, one, other) => {
    const { submitOnce } = openPage();
    server.script();
    const url = `${server.url}/orders`;
    // Two clicks on each, at once.
    const calls = [one, other, one, other].map(async (args) =>
      (await submitOnce(...args(url))).text(),
    );
    const texts = await Promise.all(calls);
    expect(server.received).toHaveLength(2);
    expect(new Set(server.ids).size).toBe(2);
    expect([texts[2], texts[3]]).toEqual([texts[0], texts[1]]);
    expect(texts[1]).not.toBe(texts[0]);
  });

  test.each(others)("keep an id each while they are in doubt: %s", async (_what, one, other) => {
    const { submitOnce } = openPage();
    server.script([500], [500]);
    const url = `${server.url}/orders`;
    for (const args of [one, other, other, one, one]) await submitOnce(...args(url));
    const [first, second, secondAgain, firstAgain, next] = server.ids;
    expect(second).not.toBe(first);
    expect([secondAgain, firstAgain]).toEqual([second, first]);
    expect(next).not.toBe(first);
  });

  test.each([{ name: "cart" }, { id: "17" }, { name: "cart", id: "17" }])(
    "are sent with %o of the page, and the guard decides",
    async (once) => {
      const { submitOnce } = openPage();
      server.script();
      const bodies = ["1", "2", "2"];
      const calls = bodies.map((body) => submitOnce(`${server.url}/`, { ...order, body, once }));
      await Promise.all(calls);
      expect(server.received.map(({ body }) => body).sort()).toEqual(["1", "2"]);
      expect(new Set(server.ids).size).toBe(1);
    },
  );
});

describe("two calls with one name", () => {
  /** Answers when it is called. */
  function held(): [Step, () => void] {
    let answer!: () => void;
    const mayAnswer = new Promise<void>((resolve) => {
      answer = resolve;
    });
    const step: Step = async (res) => {
      await mayAnswer;
      res.writeHead(201).end(JSON.stringify({ text: "x".repeat(300_000) }));
    };
    return [step, answer];
  }

  test("share one request, and get a clone each", async () => {
    const { submitOnce } = openPage({ speed: 1 });
    const [step, answer] = held();
    server.script(step);
    const calls = Array.from({ length: 10 }, () => submitOnce(`${server.url}/orders`, order));
    await until(() => server.received.length === 1, { what: "the order" });
    answer();
    const texts = await Promise.all(calls.map(async (call) => (await call).text()));
    expect(new Set(texts).size).toBe(1);
    expect(texts[0]).toHaveLength(300_011);
    expect(server.received).toHaveLength(1);
  });

  test("have a signal and a time each, and the last one to leave ends the request", async () => {
    const { submitOnce } = openPage({ speed: 1 });
    server.script(silent);
    const leaving = [new AbortController(), new AbortController()] as const;
    const calls = leaving.map(({ signal }) => submitOnce(`${server.url}/`, { ...order, signal }));
    const brief = submitOnce(`${server.url}/`, { ...order, once: { timeoutMs: 20 } });
    await expect(brief).rejects.toMatchObject({ tries: 1 });
    let hasLeft = false;
    await until(() => server.received.length === 1, { what: "the order" });
    void server.received[0]?.left.then(() => {
      hasLeft = true;
    });
    leaving[0].abort();
    await expect(calls[0]).rejects.toMatchObject({ tries: 1 });
    expect(hasLeft).toBe(false);
    leaving[1].abort();
    await expect(calls[1]).rejects.toMatchObject({ tries: 1 });
    await server.received[0]?.left;
    expect(server.received).toHaveLength(1);
  });

  test("can be aborted, each of them, after the garbage was collected", async () => {
    const { submitOnce } = openPage({ speed: 1 });
    server.script(silent);
    const leaving = [new AbortController(), new AbortController()] as const;
    const calls = leaving.map(({ signal }) => submitOnce(`${server.url}/`, { ...order, signal }));
    const ends = calls.map((call) => call.catch(({ code }) => code));
    await until(() => server.received.length === 1, { what: "the order" });
    for (let times = 0; times < 5; times++) {
      collectGarbage();
      await new Promise((resolve) => setTimeout(resolve, 5));
    }
    for (const each of leaving) each.abort();
    expect(await Promise.all(ends)).toEqual(["SUBMIT_UNANSWERED", "SUBMIT_UNANSWERED"]);
  });

  test("and another id, or with another name, are two orders", async () => {
    const { submitOnce } = openPage();
    server.script();
    const all = [{ name: "a" }, { name: "b" }, { name: "a", id: "1" }, { name: "a", id: "2" }];
    await Promise.all(all.map((once) => submitOnce(`${server.url}/`, { ...order, once })));
    expect(new Set(server.ids).size).toBe(4);
    expect(server.ids).toEqual(expect.arrayContaining(["1", "2"]));
  });

  test("have the id of a header of their own, which is not replaced", async () => {
    const { submitOnce } = openPage();
    server.script();
    const own = (key: string) => ({ ...order, headers: { "Idempotency-Key": key } });
    const keys = ["cart-7", "cart-8", "cart-8"];
    await Promise.all(keys.map((key) => submitOnce(`${server.url}/`, own(key))));
    await submitOnce(`${server.url}/`, { ...own("cart-8"), once: { id: "cart-9" } });
    expect(server.ids.sort()).toEqual(["cart-7", "cart-8", "cart-9"]);
  });

  test("one after the other are two orders, unless the page has an id of its own", async () => {
    const { submitOnce } = openPage();
    server.script();
    for (const once of [{}, {}, { id: "cart-7:1" }, { id: "cart-7:1" }]) {
      await submitOnce(`${server.url}/`, { ...order, once });
    }
    const [first, second, ...own] = server.ids;
    expect(second).not.toBe(first);
    expect(own).toEqual(["cart-7:1", "cart-7:1"]);
  });
});

describe("a body", () => {
  const form = new FormData();
  form.set("cart", "17");
  form.set("file", new File(["ä\u0000"], "note.txt", { type: "text/plain" }));
  const bytes = new TextEncoder().encode("bytes");
  const bodies: [string, NonNullable<RequestInit["body"]>][] = [
    ["text", "ä"],
    ["URLSearchParams", new URLSearchParams({ cart: "17" })],
    ["FormData", form],
    ["a Blob", new Blob(["blob"], { type: "text/x-order" })],
    ["an ArrayBuffer", bytes.buffer as ArrayBuffer],
    ["bytes", bytes],
  ];

  test.each(bodies)("of %s is sent twice, byte for byte", async (_name, body) => {
    for (const input of [
      `${server.url}/`,
      new Request(`${server.url}/`, { method: "POST", body }),
    ]) {
      server.script(lost);
      const init = typeof input === "string" ? { method: "POST", body } : {};
      await openPage().submitOnce(input, init);
      const [first, second] = server.received;
      expect(first?.body).not.toBe("");
      expect(second).toMatchObject({ body: first?.body, type: first?.type });
    }
  });

  test("is what it was at the call", async () => {
    server.script(lost);
    const body = new URLSearchParams({ cart: "17" });
    const call = openPage().submitOnce(`${server.url}/`, { method: "POST", body });
    body.set("cart", "18");
    await call;
    expect(server.received.map(({ body }) => body)).toEqual(["cart=17", "cart=17"]);
  });

  // Safari 26 reads no request of a form with a file that a script has made.
  test("of a form is read from the form", async () => {
    server.script(lost);
    const { text } = Request.prototype;
    const read = vi.spyOn(Request.prototype, "text").mockImplementation(function (this: Request) {
      const isForm = this.headers.get("content-type")?.startsWith("multipart/");
      return isForm ? Promise.reject(new Error("Unable to read form data blob")) : text.call(this);
    });
    onTestFinished(() => read.mockRestore());
    await openPage().submitOnce(`${server.url}/`, { method: "POST", body: form });
    const [first, second] = server.received;
    expect(first?.body).toContain("note.txt");
    expect(second).toMatchObject({ body: first?.body, id: first?.id });
  });

  test("may be absent, and a Request keeps its headers", async () => {
    server.script(lost);
    const headers = { "content-type": "text/x-order" };
    const request = new Request(`${server.url}/`, { method: "POST", headers });
    await openPage().submitOnce(request);
    expect(server.received).toMatchObject(Array(2).fill({ method: "POST", type: "text/x-order" }));
    // As it came, so the page can still use it.
    expect(request.bodyUsed).toBe(false);
  });

  test("that cannot be sent twice is refused", async () => {
    server.script();
    async function* chunks() {
      yield "chunk";
    }
    for (const body of [new Blob(["x"]).stream(), chunks()]) {
      const init = { method: "POST", body, duplex: "half" } as unknown as RequestInit;
      const call = openPage().submitOnce(`${server.url}/`, init);
      await expect(call).rejects.toThrow(TypeError);
      await expect(call).rejects.toThrow("timeoutMs 30000, mode cors or a stream");
    }
    expect(server.received).toEqual([]);
  });

  test("is in no error: a tracker would keep it", async () => {
    server.script();
    for (const wrong of [{ once: { timeoutMs: -1 } }, { mode: "no-cors" }] as const) {
      const init = { method: "POST", body: "card 4242", ...wrong };
      const call = openPage().submitOnce(`${server.url}/`, init);
      await expect(call).rejects.toThrow(/timeoutMs (30000|-1), mode (cors|no-cors) or a stream$/);
    }
    expect(server.received).toEqual([]);
  });
});

test("each try is asked as the page says", async () => {
  server.script(lost);
  const asked: Request[] = [];
  const { fetch } = globalThis;
  const sent = vi.spyOn(globalThis, "fetch").mockImplementation((input, init) => {
    asked.push(new Request((input as Request).clone(), init));
    return fetch(input, init);
  });
  onTestFinished(() => sent.mockRestore());
  const says = { referrerPolicy: "no-referrer", keepalive: true } as const;
  await openPage().submitOnce(`${server.url}/`, { ...order, ...says });
  expect(asked).toMatchObject([says, says]);
});

describe("arguments that fetch refuses", () => {
  test.each<[string, () => Args]>([
    ...[Number.NaN, -1, "5s"].map((timeoutMs): [string, () => Args] => [
      `timeoutMs of ${timeoutMs}`,
      () => [`${server.url}/`, { ...order, once: { timeoutMs: timeoutMs as number } }],
    ]),
    ["a mode that drops the header", (): Args => [`${server.url}/`, { ...order, mode: "no-cors" }]],
    ["a path, where there is no page", (): Args => ["/orders", order]],
    ["an address without its scheme", (): Args => ["localhost:3000/orders", order]],
    ["a scheme of files", (): Args => ["ftp://127.0.0.1/orders", order]],
    ["a body with GET", (): Args => [`${server.url}/`, { body: "x" }]],
    ["a header that is none", (): Args => [`${server.url}/`, { headers: { "ä ": "x" } }]],
    ["an id that is no header", (): Args => [`${server.url}/`, { once: { id: "€" } }]],
  ])("reject at once: %s", async (_name, args) => {
    server.script();
    await expect(openPage().submitOnce(...args())).rejects.toThrow(TypeError);
    expect(server.received).toEqual([]);
  });

  test("are none where a stream in a Request can be read: it is sent, and again", async () => {
    server.script(lost);
    const body = new Blob(["streamed"]).stream();
    const init = { method: "POST", body, duplex: "half" } as RequestInit;
    const answer = await openPage().submitOnce(new Request(`${server.url}/`, init));
    expect(answer.status).toBe(201);
    expect(server.received.map(({ body }) => body)).toEqual(["streamed", "streamed"]);
  });

  test("reject at once: a Request that was sent before", async () => {
    server.script();
    const request = new Request(`${server.url}/`, order);
    await fetch(request);
    await expect(openPage().submitOnce(request)).rejects.toThrow(TypeError);
    expect(server.received).toHaveLength(1);
  });
});

describe("the id of a name", () => {
  const nameOf = (path: string) => `submit-lock:${path}`;

  test("is the only thing that is stored, without the content, until the answer", async () => {
    const storage = new TabStorage();
    const { module, submitOnce } = openPage({ storage });
    server.script([500], [201], [500]);
    for (const input of [`${server.url}/orders`, new URL(`${server.url}/orders`)]) {
      await submitOnce(input, order);
      if (server.received.length === 2) break;
      expect([...storage.items.values()]).toEqual([server.ids[0]]);
      expect([...storage.items.keys()]).toEqual([expect.stringMatching(/^submit-lock:-?\d+$/)]);
    }
    expect([...storage.items]).toEqual([]);
    expect(server.ids[1]).toBe(server.ids[0]);
    await submitOnce(`${server.url}/orders`, { ...order, once: { name: "cart:17" } });
    expect([...storage.items]).toEqual([[nameOf("cart:17"), module.idOf("cart:17")]]);
    expect(server.ids[2]).toBe(module.idOf("cart:17"));
  });

  test("is given up by the page", async () => {
    const { module, submitOnce } = openPage();
    server.script([500], lost, [402]);
    const init = { ...order, once: { name: "cart:17" } };
    await submitOnce(`${server.url}/orders`, init);
    module.forget("cart:17");
    await submitOnce(`${server.url}/orders`, init);
    await submitOnce(`${server.url}/orders`, init);
    module.forget("cart:17");
    await submitOnce(`${server.url}/orders`, init);
    const [first, second, ...others] = server.ids;
    expect(second).not.toBe(first);
    expect(others.slice(0, 2)).toEqual([second, second]);
    expect(others[2]).not.toBe(second);
  });

  test("survives a reload in flight, and goes with the tab that is duplicated", async () => {
    const storage = new TabStorage();
    server.script(silent);
    const first = openPage({ storage });
    void first.submitOnce(`${server.url}/orders`, order);
    await until(() => server.received.length === 1, { what: "the order" });
    first.close();
    const duplicate = new TabStorage(storage.items);
    await openPage({ storage }).submitOnce(`${server.url}/orders`, order);
    await openPage({ storage: duplicate }).submitOnce(`${server.url}/orders`, order);
    await openPage({ storage }).submitOnce(`${server.url}/orders`, order);
    const [id, reloaded, duplicated, next] = server.ids;
    expect([reloaded, duplicated]).toEqual([id, id]);
    expect(next).not.toBe(id);
  });

  test("that came later is not forgotten with an older one", async () => {
    const storage = new TabStorage();
    const { submitOnce } = openPage({ storage });
    server.script((res) => {
      storage.setItem(nameOf("cart"), "newer");
      res.writeHead(201).end();
    });
    const init = { ...order, once: { name: "cart" } };
    await submitOnce(`${server.url}/`, init);
    expect(storage.getItem(nameOf("cart"))).toBe("newer");
    await submitOnce(`${server.url}/`, init);
    expect(server.ids[1]).toBe("newer");
  });

  test("is not left in a process that makes many orders", async () => {
    const { submitOnce } = openPage();
    const placeOrders = async (count: number): Promise<number> => {
      for (let at = 0; at < count; at++) {
        server.script();
        const once = { id: `${at} `.padEnd(14_000, "x") };
        await submitOnce(`${server.url}/`, { ...order, once });
      }
      collectGarbage();
      return process.memoryUsage().heapUsed;
    };
    const heap = await placeOrders(20);
    expect((await placeOrders(200)) - heap).toBeLessThan(1_500_000);
  });

  const refused = () => {
    throw new DOMException("the operation is insecure", "SecurityError");
  };
  const refusing: [string, ConstructorParameters<typeof Page>[0]][] = [
    ["absent", { storage: undefined }],
    ["null", { globals: { sessionStorage: null } }],
    [
      "refused at a look",
      { globals: Object.defineProperty({}, "sessionStorage", { get: refused }) },
    ],
    ["full", { storage: { getItem: () => null, setItem: refused, removeItem: () => {} } }],
    ["refusing", { storage: { getItem: refused, setItem: refused, removeItem: refused } }],
    ["forgetful", { storage: { getItem: () => null, setItem() {}, removeItem() {} } }],
  ];
  test.each(refusing)("is in memory where storage is %s", async (_name, options) => {
    const { module, submitOnce } = openPage({ storage: undefined, ...options });
    server.script([500], [201]);
    const id = module.idOf("cart");
    const init = { ...order, once: { name: "cart" } };
    for (let clicks = 0; clicks < 3; clicks++) await submitOnce(`${server.url}/`, init);
    const [first, second, third] = server.ids;
    expect([first, second]).toEqual([id, id]);
    expect(third).not.toBe(id);
  });
});

test("a 4xx keeps the id while other content is on its way with it", async () => {
  const { submitOnce } = openPage();
  const held: Parameters<Step>[0][] = [];
  const hold: Step = (res) => void held.push(res);
  server.script(hold, hold);
  const click = async (body: string) =>
    (await submitOnce(`${server.url}/`, { ...order, body, once: { name: "cart" } })).status;
  const [small, large] = [click("small"), click("large")];
  await until(() => held.length === 2, { what: "both" });
  const first = server.received.findIndex(({ body }) => body === "small");
  held[first]?.writeHead(402).end();
  expect(await small).toBe(402);
  expect(await click("small")).toBe(201);
  held[1 - first]?.writeHead(201).end();
  expect(await large).toBe(201);
  expect(new Set(server.ids).size).toBe(1);
});

describe("a 4xx after an order that was sent without an answer", () => {
  // What was sent before may still be on its way, and overtaken by what was answered.
  const steps: [string, Step | Answer][] = [
    ["a lost connection", lost],
    ["504", [504]],
    ["409 idempotency_in_flight", inFlight],
    ["500", [500]],
    ["503 submit_lock_lost", [503, undefined, coded("submit_lock_lost")]],
    ["409 idempotency_answer_unavailable", [409, problem("idempotency_answer_unavailable")]],
    ["422 idempotency_conflict", [422, problem("idempotency_conflict")]],
    ["reload", silent],
    ["abort", silent],
  ];
  test.each(steps)("keeps the id until the order is placed: %s", async (name, step) => {
    const storage = new TabStorage();
    let page = openPage({ storage });
    // In front of the guard others refuse, too: a CSRF check, a firewall, a parser.
    server.script(step, [402], [403], [422], [201]);
    if (step === silent) {
      const leaving = new AbortController();
      const init = { ...order, signal: leaving.signal };
      const call = page.submitOnce(`${server.url}/`, init).catch(() => {});
      await until(() => server.received.length === 1, { what: "the order" });
      if (name === "reload") {
        page.close();
        page = openPage({ storage });
      } else {
        leaving.abort();
        await call;
      }
    }
    const click = async () => (await page.submitOnce(`${server.url}/`, order)).status;
    while ((await click()) !== 201);
    await click();
    const ids = [...server.ids];
    const [first] = ids;
    expect(ids.slice(0, -1)).toEqual(Array(ids.length - 1).fill(first));
    expect(ids.at(-1)).not.toBe(first);
  });
});
