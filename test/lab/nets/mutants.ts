import type { Framework } from "../../http/frameworks.ts";
import { Progress } from "../progress.ts";
import { runBroken as runBrokenPages } from "../sequences/mutants.ts";
import { type Change, changed, misfits, sources } from "../simulation/mutants/workshop.ts";
import { runBroken as runBrokenSql } from "../transaction/mutants.ts";
import { cast, type NetName } from "./nets.ts";

/** A flaw that was in the sources once, or could be, put into them. */
export interface Flaw extends Change {
  readonly net: NetName;
  /** The family of frameworks on whose programs the net must notice it. */
  readonly family: Framework["family"];
}

export const flaws: readonly Flaw[] = [
  {
    net: "same-answer",
    family: "express",
    name: "hooks of inner middleware are not seen",
    in: "watchHooks",
    find: "if (writeHead === this.#writeHead) return;",
    replace: "return;",
  },
  {
    net: "same-answer",
    family: "koa",
    name: "a repeat has the type that Koa guesses",
    in: "repeat",
    find: 'if (type === undefined) ctx.remove("Content-Type");',
    replace: "",
  },
  {
    net: "same-answer",
    family: "fastify",
    name: "the text behind the hooks is kept, and passes them again",
    in: "hookInto",
    find: "[firstOnSend, ...hooks]",
    replace: "[...hooks, firstOnSend]",
  },
  {
    net: "same-answer",
    family: "fetch",
    name: "the chunks that are read ahead are not kept",
    in: "untilOver",
    find: "keep(part.value); controller.enqueue",
    replace: "if (ready === undefined) keep(part.value); controller.enqueue",
  },
  {
    net: "same-answer",
    family: "express",
    name: "a resolved promise is the end of all work",
    in: "run",
    find: "isPromise && hasAnswered)",
    replace: "isPromise)",
  },
  {
    net: "same-answer",
    family: "express",
    name: "placed() is not recorded without an answer",
    in: "#kept",
    find: "if (IdentifiedSubmission.isPlaced(submission)) return done;",
    replace: "",
  },
  {
    net: "same-answer",
    family: "express",
    name: "an answer behind which the handler goes on is lost with the lease",
    in: "#recordNow",
    find: "if (kept !== undefined) UserLease.record(lease, kept);",
    replace: "",
  },
  {
    net: "same-answer",
    family: "koa",
    name: "a time-out around the guard is the handler's own answer",
    in: "settled",
    find: "if (late !== undefined)",
    replace: "if (late === undefined)",
  },
  {
    net: "same-answer",
    family: "koa",
    name: "a body that JSON cannot hold is no order",
    in: "settled",
    find: "this.isDone = status < 400;",
    replace: "",
  },
  {
    net: "same-answer",
    family: "fastify",
    name: "a clock's 503 is the handler's own answer",
    in: "#saysLate",
    find: "this.#isLate ||= reply",
    replace: "this.#isLate = false && reply",
  },
  {
    net: "same-answer",
    family: "fastify",
    name: "a payload that a serialiser refuses is no order",
    in: "#says",
    find: "this.#isWell = status < 400;",
    replace: "",
  },
  {
    net: "same-answer",
    family: "fetch",
    name: "a library's Response is read as the platform's",
    in: "headOf",
    find: "if (isPlain && !isDecoded(response)) return response;",
    replace: "if (response.status > 0) return response;",
  },
  {
    net: "same-answer",
    family: "fetch",
    name: "a proxied Response is framed twice",
    in: "untilOver",
    find: "isChunked(response) ? new Blob([bytes]).stream() : bodyOf(bytes, response.headers)",
    replace: "bodyOf(bytes, response.headers)",
  },
  {
    net: "linear-cost",
    family: "express",
    name: "codings are split at blanks",
    in: "isCodingAccepted",
    find: 'element.split(";").map((each) => each.trim())',
    replace: "element.split(/\\s*;\\s*/)",
  },
  {
    net: "linear-cost",
    family: "koa",
    name: "commas within quotes are left together",
    in: "prefersHtml",
    find: 'accept.split(",")',
    replace: `accept.split(/,(?=(?:[^"]*"[^"]*")*[^"]*$)/)`,
  },
  {
    net: "linear-cost",
    family: "fastify",
    name: "a list is made anew for each value of a query",
    in: "fieldsOf",
    find: "earlier.push(value);",
    replace: "values[name] = [...earlier, value];",
  },
  {
    net: "linear-cost",
    family: "fetch",
    name: "a list is made anew for each field of a form",
    in: "contentOf",
    find: "return without(fieldsOf(text), except) ?? bytes;",
    replace: 'return text.split("&").reduce<string[]>((all, each) => [...all, each], []);',
  },
  {
    net: "fail-anywhere",
    family: "express",
    name: "a handler that rejects never ends",
    in: "run",
    find: "if (isPromise) held.finished();",
    replace: "if (isPromise) held.begin();",
  },
  {
    net: "fail-anywhere",
    family: "koa",
    name: "only what succeeds downstream ends",
    in: "submitGuard",
    find: "} finally { detach(ctx, bodies, held, capture);",
    replace: "} { detach(ctx, bodies, held, capture);",
  },
  {
    net: "fail-anywhere",
    family: "fastify",
    name: "a handler that rejects never ends",
    in: "run",
    find: "else held.finished(); throw own;",
    replace: "else held.begin(); throw own;",
  },
  {
    net: "fail-anywhere",
    family: "fetch",
    name: "a response that cannot be watched never ends",
    in: "enter",
    find: "unanswered(); return response;",
    replace: "return response;",
  },
];

/** `npm run lab -- net-mutants [words]`: each flaw put into the sources, and whether its net is red. */
export async function run(): Promise<void> {
  const words = process.argv.slice(2);
  const outdated = await misfits(flaws);
  if (outdated.length > 0) throw new Error(outdated.join("\n"));
  const chosen = flaws.filter(({ family, name, net }) =>
    words.every((word) => `${net} ${family} ${name}`.includes(word)),
  );
  let survivors = 0;
  for (const flaw of chosen) {
    const { family, name, net } = flaw;
    const plan = { runs: 5_000, seed: 1, family, isStrict: false };
    const progress = new Progress(plan.runs, "programs");
    const { failure, runs } = await cast(net, plan, {
      texts: changed(await sources(), flaw),
      onPlayed: progress.at(0),
    }).finally(() => progress.stop());
    if (failure === undefined) survivors++;
    const outcome = failure === undefined ? "SURVIVED" : failure.text.split("\n", 1)[0];
    console.log(`${net}, ${family}: ${name}\n  after ${runs}: ${outcome}`);
  }
  console.log(`${chosen.length - survivors} of ${chosen.length} flaws were noticed.`);
  const pages = await runBrokenPages(words);
  const sql = await runBrokenSql(words);
  if (chosen.length + pages.tried + sql.tried === 0) {
    throw new Error(`no flaw's name has "${words.join('" and "')}"`);
  }
  if (survivors + pages.survivors + sql.survivors > 0) process.exitCode = 1;
}
