import { until } from "../support/until.ts";
import { type Framework, koas, mainFrameworks, newer } from "./frameworks.ts";
import { gate } from "./gate.ts";
import type { Call, Reply, Submit } from "./http-client.ts";
import { openShop, type Shop, type ShopOptions } from "./shop.ts";
import type { Told, Turn } from "./turn.ts";

/** Every framework on which the end of a handler is seen, on HTTP/2 where it runs on it. */
export const everywhere: readonly Framework[] = [
  ...mainFrameworks,
  ...koas.filter(({ http }) => http === 2),
];

/** With those on which a guard is no middleware. */
export const onAll: readonly Framework[] = [...everywhere, ...newer];

export interface OnceOptions extends Omit<Partial<ShopOptions>, "handler" | "framework"> {
  framework: Framework;
  /** `run` counts from 1. @defaultValue answers 201 with the number of the run */
  handler?: (turn: Turn, run: number) => unknown;
}

export interface OnceSubmit extends Omit<Submit, "body" | "headers"> {
  /** @defaultValue none */
  readonly key?: string;
  readonly user?: string;
  readonly headers?: Record<string, string | string[]>;
  /** Sent as JSON unless it is a string. */
  readonly body?: object | string;
}

/** A shop with `idempotency`, and what is to be seen of its submissions. */
export interface OnceShop {
  readonly shop: Shop;
  /** How often the handler has run. */
  readonly runs: number;
  begin(submit?: OnceSubmit): Call;
  /** The same, and waits until the handler of this first order runs. */
  start(submit?: OnceSubmit): Promise<Call>;
  submit(submit?: OnceSubmit): Promise<Reply>;
  /** What a first submit and its retry are answered, once the first one's answer is kept. */
  twice(submit?: OnceSubmit): Promise<[Reply, Reply]>;
  /** The text of each record of the user's. */
  records(): Promise<string[]>;
  /** Whatever is of the user's in Redis, as it is. */
  everything(): Promise<unknown>;
  /** Resolves when the lock is free and so many records are kept. */
  whenKept(count: number): Promise<void>;
}

/** Such as no other test sends. */
export const orderKey = "8e03978e-40d5-43dd-bc93-6894a57f9324";

export async function openOnce(options: OnceOptions): Promise<OnceShop> {
  const { handler = (turn, run) => turn.answer(201, { run }), guard, ...parts } = options;
  let runs = 0;
  const shop = await openShop({
    ...parts,
    guard: { idempotency: {}, ...guard },
    handler: (turn, work) => {
      work.overNow();
      return handler(turn, ++runs);
    },
  });
  const { redis } = shop;
  const keys = () => redis.keys(`*${shop.user}*`);
  // Without what a run told to the clicks that were waiting: that is no record (rule 25).
  const isRecord = (key: string) => key.startsWith("{") && !key.endsWith(":told");
  const recordKeys = async () => (await keys()).filter(isRecord).sort();
  const begin = ({ body, headers, key, user = shop.user, ...submit }: OnceSubmit = {}): Call =>
    shop.submit({
      ...submit,
      headers: {
        "x-user": user,
        ...(key === undefined ? {} : { "idempotency-key": key }),
        ...(typeof body === "object" ? { "content-type": "application/json" } : {}),
        ...headers,
      },
      body: typeof body === "object" ? JSON.stringify(body) : body,
    });
  const whenKept = async (count: number) => {
    await until(
      async () => (await shop.owner()) === null && (await recordKeys()).length === count,
      { what: `a free lock and ${count} records` },
    );
  };
  return {
    shop,
    get runs() {
      return runs;
    },
    begin,
    async start(submit) {
      const call = begin(submit);
      await until(() => runs > 0, { what: "the order to start" });
      return call;
    },
    submit: (submit) => begin(submit).reply,
    async twice(submit = { key: orderKey }) {
      const first = await begin(submit).reply;
      await whenKept(1);
      return [first, await begin(submit).reply];
    },
    records: async () =>
      (await Promise.all((await recordKeys()).map((key) => redis.get(key)))) as string[],
    async everything() {
      const dumps = (await keys()).sort().map(async (key) => [key, await redis.dump(key)]);
      return await Promise.all(dumps);
    },
    whenKept,
  };
}

/** A shop whose orders wait, once they have started, until `goOn` is called. */
export async function openWaiting(
  options: OnceOptions,
): Promise<{ once: OnceShop; goOn: () => void }> {
  const { opened, open } = gate();
  const { handler = (turn, run) => turn.answer(201, { run }) } = options;
  const waiting = async (turn: Turn, run: number) => {
    await opened;
    return await handler(turn, run);
  };
  return { once: await openOnce({ ...options, handler: waiting }), goOn: open };
}

/** An answer of the application's own to a replay, and what it was told. */
export function ownReplay(body: object = {}) {
  const infos: Told[] = [];
  const onReplay = (told: Told) => {
    infos.push(told);
    return [200, body] as const;
  };
  return { infos, onReplay };
}

/** The reply without the header that marks a replay, and without what frames the body's bytes. */
export function unmarked({ headers, ...reply }: Reply): Reply {
  const notCompared = ["idempotent-replayed", "content-length", "transfer-encoding"];
  const compared = Object.entries(headers).filter(([name]) => !notCompared.includes(name));
  return { ...reply, headers: Object.fromEntries(compared) };
}

/** The `code` of a problem document. */
export function codeOf(reply: Reply): unknown {
  return JSON.parse(reply.body).code;
}
