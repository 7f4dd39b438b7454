import { setTimeout as sleep } from "node:timers/promises";
import { type Line, timeline } from "./timeline.ts";

interface Answer {
  readonly status: number;
  readonly retryAfter: string | null;
  readonly line: Line;
}

interface View {
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

  /** @param since the beginning of the time axis. */
  async submit(label: string, since: number, signal?: AbortSignal): Promise<Answer> {
    const startMs = performance.now() - since;
    const request = { method: "POST", ...(signal && { signal }) };
    try {
      const response = await this.#send("/orders", request);
      const body = (await response.json()) as { code?: string; number?: number };
      const { status } = response;
      const retryAfter = response.headers.get("retry-after");
      const said = body.code ?? `order ${body.number}`;
      const outcome = `${status} ${said}${retryAfter ? `, Retry-After: ${retryAfter}` : ""}`;
      const endMs = performance.now() - since;
      return { status, retryAfter, line: { label, startMs, endMs, outcome } };
    } catch (error) {
      if (!signal?.aborted) throw error;
      const line = { label, startMs, endMs: performance.now() - since, outcome: "went away" };
      return { status: 0, retryAfter: null, line: { ...line, aborted: true } };
    }
  }

  #send(path: string, init: RequestInit): Promise<Response> {
    return fetch(this.#url + path, { ...init, headers: this.#headers });
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
  for (const scene of [clickTenTimes, leaveAndRetry, orderSideBySide]) {
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
  const ok = count(answers, 201) === 1 && refused.length === 9;
  return {
    title: "Ada clicks ten times at once: one order, and nine answers that say so.",
    lines: answers.map(({ line }) => line),
    failure: ok ? undefined : `expected one 201 and nine 409 with Retry-After, got ${all(answers)}`,
  };
}

async function leaveAndRetry(ada: Customer): Promise<Scene> {
  const before = (await ada.look()).orders.length;
  const since = performance.now();
  const leaving = new AbortController();
  const leaves = ada.submit("submit", since, leaving.signal);
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

function count(answers: readonly Answer[], status: number): number {
  return answers.filter((answer) => answer.status === status).length;
}

function all(answers: readonly Answer[]): string {
  return answers.map(({ status }) => status).join(", ");
}
