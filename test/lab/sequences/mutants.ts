import { breakPages } from "../../support/page.ts";
import { serverBinary } from "../../support/server-binary.ts";
import { startServer } from "../../support/server-process.ts";
import {
  type Change,
  changed,
  misfits,
  type Outcome,
  sources,
} from "../simulation/mutants/workshop.ts";
import { byContent, type Strategy } from "./customer.ts";
import { hunt } from "./run.ts";

/** A flaw that was in the browser's half once, or could be, and the way to order that notices it. */
interface Flaw extends Change {
  readonly strategy: Strategy;
}

export const pageFlaws: readonly Flaw[] = [
  {
    strategy: byContent,
    name: "an order is named after its place, and not after its content",
    in: "submitOnce",
    find: "digestOf(content)",
    replace: "url",
  },
  {
    strategy: byContent,
    name: "calls of one URL share a request, whatever they send",
    in: "submitOnce",
    find: "const key = id + content;",
    replace: "const key = url;",
  },
  {
    strategy: "`submitOnce`",
    name: "a refusal in front of the guard ends an id whose order is in doubt",
    in: "flightOf",
    find: "const isSure = unused.delete(id) ||",
    replace: "const isSure = unused.delete(id) || true ||",
  },
  {
    strategy: "`submitOnce`",
    name: "a refusal is known by a code in its body alone",
    in: "flightOf",
    find: 'headers.get("Submit-Lock-Code") ??',
    replace: "",
    also: { in: "flightOf", find: "(status === CONFLICT && given && !code)", replace: "false" },
  },
  {
    strategy: "`submitOnce`",
    name: "an answer that says that there is an order ends its id",
    in: "flightOf",
    find: "const isRefused = isSure && !response.redirected && status < SERVER_ERROR;",
    replace: "const isRefused = status < SERVER_ERROR; if (status === CONFLICT) forget(name);",
  },
  {
    strategy: "`submitOnce`",
    name: "an id of an earlier page counts as one under which nothing was sent",
    in: "idOf",
    find: "keep(name, id);",
    replace: "keep(name, id); unused.add(id);",
  },
  {
    strategy: "`submitOnce`",
    name: "a refusal ends an id with which other content is on its way",
    in: "flightOf",
    find: "if (each.includes(id)) unused.delete(id);",
    replace: "each;",
  },
];

export async function runBroken(words: readonly string[]): Promise<Outcome> {
  const outdated = await misfits(pageFlaws);
  if (outdated.length > 0) throw new Error(outdated.join("\n"));
  const chosen = pageFlaws.filter(({ name, strategy }) =>
    words.every((word) => `browser-sequences ${strategy} ${name}`.includes(word)),
  );
  if (chosen.length === 0) return { tried: 0, survivors: 0 };
  let survivors = 0;
  const redis = await startServer(serverBinary());
  try {
    for (const flaw of chosen) {
      await breakPages(changed(await sources(), flaw));
      // The hunt ends with the first that fails: for the rarest flaws, one in a thousand.
      const plan = { runs: 8_000, seed: 1, shops: 12, redisPort: redis.port, shrinks: false };
      const story = await hunt(flaw.strategy, plan);
      if (story === undefined) survivors++;
      const outcome = story?.split("\n").slice(0, 2).join(" ") ?? "SURVIVED";
      console.log(`browser-sequences, ${flaw.name}\n  ${outcome}`);
    }
  } finally {
    await redis.stop();
    await breakPages(new Map());
  }
  console.log(`${chosen.length - survivors} of ${chosen.length} broken pages were noticed.`);
  return { tried: chosen.length, survivors };
}
