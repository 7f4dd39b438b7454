import { setTimeout as sleep } from "node:timers/promises";
import { type Line, timeline } from "./timeline.ts";

interface Answer {
  readonly status: number;
  readonly retryAfter: string | null;
  /** The order that was placed. */
  readonly order: number | undefined;
  /** It is the answer of an earlier click. */
  readonly isReplay: boolean;
  readonly line: Line;
}

interface View {
  readonly cart: number;
  readonly version: number;
  readonly ordering: boolean;
  readonly orders: readonly unknown[];
}

/** A customer of the shop at `url`, who speaks HTTP and nothing else. */
class Customer {
  readonly #url: string;
  readonly #headers: Record<string, string>;

  constructor(url: string, token: string) {
    this.#url = url;
    this.#headers = { authorization: `Bearer ${token}` };
  }

  async refillCart(): Promise<void> {
    await this.#send("/cart", { method: "PUT" });
  }

  async look(): Promise<View> {
    return (await (await this.#send("/cart", {})).json()) as View;
  }

  /** Until the shop is at work on an order of this customer, or until it is not any more. */
  async sees(ordering: boolean): Promise<void> {
    for (let looks = 0; looks < 1_000; looks++) {
      if ((await this.look()).ordering === ordering) return;
      await sleep(10);
    }
    throw new Error(`the shop was ${ordering ? "never" : "for ever"} at work on an order`);
  }

  /**
   * @param since the beginning of the time axis.
   * @param seen the cart that the page showed: it is one submission, however often it is sent.
   * Without it there is the lock alone.
   */
  async submit(
    label: string,
    since: number,
    { signal, seen }: { signal?: AbortSignal; seen?: View } = {},
  ): Promise<Answer> {
    const startMs = performance.now() - since;
    const body = JSON.stringify({ cart: seen?.cart, version: seen?.version });
    const request = { method: "POST", body, ...(signal && { signal }) };
    try {
      const response = await this.#send(seen ? "/orders" : "/lock/orders", request);
      const answer = (await response.json()) as { code?: string; number?: number };
      const { status } = response;
      const retryAfter = response.headers.get("retry-after");
      const said = ` ${answer.code ?? `order ${answer.number}`}`;
      const isReplay = response.headers.get("idempotent-replayed") === "true";
      const more = `${retryAfter ? `, Retry-After: ${retryAfter}` : ""}${isReplay ? ", again" : ""}`;
      const line = {
        label,
        startMs,
        endMs: performance.now() - since,
        outcome: status + said + more,
      };
      return { status, retryAfter, isReplay, order: answer.number, line };
    } catch (error) {
      if (!signal?.aborted) throw error;
      const line = { label, startMs, endMs: performance.now() - since, outcome: "went away" };
      const aborted = { ...line, aborted: true };
      return { status: 0, retryAfter: null, isReplay: false, order: undefined, line: aborted };
    }
  }

  #send(path: string, init: RequestInit): Promise<Response> {
    const type = init.body === undefined ? {} : { "Content-Type": "application/json" };
    return fetch(this.#url + path, { ...init, headers: { ...this.#headers, ...type } });
  }
}

/**
 * Plays impatient customers against the shop at `url` and shows every request.
 *
 * @returns what did not go as it should; nothing, if all is well.
 */
export async function play(url: string, show: (text: string) => void): Promise<string[]> {
  const ada = new Customer(url, "token-of-ada");
  const grace = new Customer(url, "token-of-grace");
  const failures: string[] = [];
  for (const scene of [clickTenTimes, leaveAndRetry, orderSideBySide, clickLate]) {
    await ada.refillCart();
    await grace.refillCart();
    const { title, lines, failure } = await scene(ada, grace);
    show(`${title}\n\n${timeline(lines)}\n`);
    if (failure !== undefined) failures.push(`${title}: ${failure}`);
  }
  return failures;
}

interface Scene {
  readonly title: string;
  readonly lines: readonly Line[];
  readonly failure: string | undefined;
}

async function clickTenTimes(ada: Customer): Promise<Scene> {
  // Ten connections that are open already, so that the clicks arrive at once on a slow machine too.
  await Promise.all(Array.from({ length: 10 }, () => ada.look()));
  const since = performance.now();
  const clicks = Array.from({ length: 10 }, (_, at) => ada.submit(`click ${at + 1}`, since));
  const answers = await Promise.all(clicks);
  const refused = answers.filter(({ status, retryAfter }) => status === 409 && retryAfter !== null);
  // On a machine that is very busy, a click arrives when the order is over.
  const isRefused = refused.length > 0 && refused.length + count(answers, 422) === 9;
  const ok = count(answers, 201) === 1 && isRefused;
  return {
    title: "The lock. Ada clicks ten times at once: one order, and nine answers that say so.",
    lines: answers.map(({ line }) => line),
    failure: ok ? undefined : `expected one 201 and nine 409 with Retry-After, got ${all(answers)}`,
  };
}

async function leaveAndRetry(ada: Customer): Promise<Scene> {
  const before = (await ada.look()).orders.length;
  const since = performance.now();
  const leaving = new AbortController();
  const leaves = ada.submit("submit", since, { signal: leaving.signal });
  await ada.sees(true);
  const startMs = performance.now() - since;
  const done = ada.sees(false).then(() => performance.now() - since);
  await sleep(200);
  leaving.abort();
  const first = await leaves;
  const retries: Answer[] = [];
  do {
    retries.push(await ada.submit(`retry ${retries.length + 1}`, since));
    await sleep(1_000 * Number(retries.at(-1)?.retryAfter));
  } while (retries.at(-1)?.status === 409 && retries.length < 20);
  const work = {
    label: "(at work)",
    startMs,
    endMs: await done,
    outcome: "the order, all the same",
  };
  const orders = (await ada.look()).orders.length - before;
  const last = retries.at(-1)?.status;
  const ok = last === 422 && count(retries, 409) === retries.length - 1 && orders === 1;
  return {
    title: "Ada leaves in the middle and retries: her order goes on, and empties the cart.",
    lines: [first.line, { ...work, work: true }, ...retries.map(({ line }) => line)],
    failure: ok
      ? undefined
      : `expected 409 while the order is under way, 422 after it and one order, got ${all(retries)} and ${orders} orders`,
  };
}

async function orderSideBySide(ada: Customer, grace: Customer): Promise<Scene> {
  const since = performance.now();
  const first = ada.submit("Ada", since);
  await ada.sees(true);
  const answers = await Promise.all([first, grace.submit("Grace", since)]);
  return {
    title: "Grace orders while Ada's order is under way: nobody is held up by somebody else.",
    lines: answers.map(({ line }) => line),
    failure: count(answers, 201) === 2 ? undefined : `expected two 201, got ${all(answers)}`,
  };
}

async function clickLate(ada: Customer): Promise<Scene> {
  const seen = await ada.look();
  const since = performance.now();
  const first = ada.submit("click 1", since, { seen });
  await ada.sees(true);
  const answers = await Promise.all([first, ada.submit("click 2", since, { seen })]);
  await sleep(300);
  answers.push(await ada.submit("late click", since, { seen }));
  const orders = (await ada.look()).orders.length - seen.orders.length;
  const numbers = new Set(answers.map(({ order }) => order));
  const replays = answers.filter(({ isReplay }) => isReplay).length;
  const ok = count(answers, 201) === 3 && replays === 2 && numbers.size === 1 && orders === 1;
  return {
    title:
      "The lock and once. Ada clicks twice, and once more when all is done: one order, told thrice.",
    lines: answers.map(({ line }) => line),
    failure: ok
      ? undefined
      : `expected three 201 of one order, two of them repeated, got ${all(answers)}, ${replays} repeated and ${orders} orders`,
  };
}

function count(answers: readonly Answer[], status: number): number {
  return answers.filter((answer) => answer.status === status).length;
}

function all(answers: readonly Answer[]): string {
  return answers.map(({ status }) => status).join(", ");
}
