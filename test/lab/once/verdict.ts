import type { Asked, Reply } from "./client.ts";
import { textOf } from "./order.ts";

/** In a word what a client was told; a number is the status of a refusal or an error. */
export type Told =
  | "first answer"
  | "new order"
  | "another user's answer"
  | "another payload's answer"
  | "altered answer"
  | "empty answer"
  | "no answer"
  | number;

/** A success that is not the answer to what this client asked for. */
const wrongAnswers: readonly Told[] = [
  "another user's answer",
  "another payload's answer",
  "altered answer",
  "empty answer",
];

export function isWrong(told: Told): boolean {
  return wrongAnswers.includes(told);
}

/** Worth asking again: in flight, or the shop is in trouble. */
export function isRefusal(told: Told): boolean {
  return told === "no answer" || told === 409 || (typeof told === "number" && told >= 500);
}

/** More than one client can cause within its patience. */
const mostRuns = 20;

/**
 * Reads a reply to `asked`. `others` is what else was asked for under the same key: a success that
 * is theirs is told as such.
 */
export function toldBy(reply: Reply, asked: Asked, others: readonly Asked[] = []): Told {
  if ("failure" in reply) return "no answer";
  if (reply.status >= 300) return reply.status;
  if (reply.body === "") return "empty answer";
  for (const one of [asked, ...others]) {
    const run = runIn(reply, one);
    if (run === undefined) continue;
    if (one.user !== asked.user) return "another user's answer";
    if (one.order !== asked.order) return "another payload's answer";
    return run === 1 ? "first answer" : "new order";
  }
  return "altered answer";
}

/** Which run of the handler made exactly this answer: each run makes another order. */
function runIn(
  reply: Exclude<Reply, { failure: string }>,
  { order, user }: Asked,
): number | undefined {
  for (let run = 1; run <= mostRuns; run++) {
    const { type, body } = textOf(order, user, run);
    if (reply.status === 201 && reply.type === type && reply.body === body) return run;
  }
  return undefined;
}
