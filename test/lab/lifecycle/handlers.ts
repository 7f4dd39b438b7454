import { Readable } from "node:stream";
import { pipeline } from "node:stream/promises";
import { setTimeout as sleep } from "node:timers/promises";
import { type Framework, writesByHand } from "../../http/frameworks.ts";
import type { Turn } from "../../http/turn.ts";

/** Notes a piece of work of this request, from its call to the call of what it returns. */
type Begin = () => () => void;

/** A handler that takes a few milliseconds to place an order. */
type Handler = (turn: Turn, workMs: number, begin: Begin) => unknown;

const answer: Handler = async (turn, workMs) => {
  await sleep(workMs);
  turn.answer(201, { order: "placed" });
};

const largeAnswer: Handler = async (turn, workMs) => {
  await sleep(workMs);
  turn.answer(201, "placed".repeat(100_000));
};

const answerFirst: Handler = async (turn, workMs) => {
  turn.byHand().end("placed");
  await sleep(workMs);
};

const destroyBehindEnd: Handler = async (turn, workMs) => {
  await sleep(workMs);
  turn.byHand().end("placed");
  turn.req.destroy();
};

const inParts: Handler = async (turn, workMs) => {
  const res = turn.byHand();
  for (let part = 0; part < 3; part++) {
    res.write("a part");
    await sleep(workMs);
  }
  res.end();
};

const failure: Handler = async (turn, workMs) => {
  await sleep(workMs);
  turn.fail(new Error("there is no stock"));
};

const brokenOff: Handler = async (turn, workMs) => {
  const res = turn.byHand();
  res.write("a part");
  await sleep(workMs);
  res.destroy();
  await sleep(workMs);
  res.end();
};

/** What writes the order is the stream itself. */
const workingStream: Handler = (turn, workMs, begin) => {
  async function* parts() {
    const end = begin();
    try {
      for (let part = 0; part < 3; part++) {
        await sleep(workMs);
        yield "a part of the order";
      }
    } finally {
      end();
    }
  }
  const source = Readable.from(parts());
  // On Node.js 20 `pipeline` rejects while its source is still cleaning up.
  return turn.stream(source)?.finally(() => closeOf(source));
};

function closeOf(source: Readable): Promise<void> | undefined {
  return source.closed ? undefined : new Promise((closed) => source.once("close", closed));
}

const largeStream: Handler = (turn) =>
  turn.stream(Readable.from(Array.from({ length: 40 }, () => Buffer.alloc(65_536))));

const pipedByHand: Handler = async (turn) => {
  const res = turn.byHand();
  // What is left to do is to say that it is over: Koa cannot see it.
  await pipeline(Readable.from([Buffer.alloc(1_000_000)]), res).finally(() => res.end());
};

const byFramework = { answer, largeAnswer, failure, workingStream, largeStream };
const byHand = { answerFirst, destroyBehindEnd, inParts, brokenOff, pipedByHand };

export const handlers = { ...byFramework, ...byHand } satisfies Record<string, Handler>;

export type HandlerName = keyof typeof handlers;

/** The handlers that run on a framework. */
export function handlerNames(framework: Framework): HandlerName[] {
  return Object.keys(writesByHand(framework) ? handlers : byFramework) as HandlerName[];
}
