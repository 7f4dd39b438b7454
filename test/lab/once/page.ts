import { cpus } from "node:os";
import { type Crash, crashBoundMs } from "./crash.ts";
import type { Played } from "./play.ts";
import { patienceMs, type Scenario, scenarios, type Trial } from "./scenarios.ts";
import { isRefusal, isWrong, type Told } from "./verdict.ts";

/** The table: a row a library, a column a scenario. */
export function tableOf(all: readonly Played[]): string {
  const head = [
    "library",
    ...scenarios.map(({ name }) => name),
    "crash",
    "two orders for one",
    "wrong answers",
  ];
  const rows = all.map((played) => [
    played.name,
    ...scenarios.map((scenario) => {
      const sign = played.notes?.[scenario.name] === undefined ? "" : " †";
      return cell(scenario, played.trials.get(scenario) ?? []) + sign;
    }),
    crashCell(played.crash),
    unwantedOrders(played),
    `${wrongAnswers(played)}`,
  ]);
  return [head, head.map(() => "---"), ...rows]
    .map((cells) => `| ${cells.join(" | ")} |`)
    .join("\n");
}

const words: Record<Exclude<Told, number>, string> = {
  "first answer": "same",
  "new order": "new order",
  "another user's answer": "**other user's**",
  "another payload's answer": "**other payload's**",
  "altered answer": "**altered**",
  "empty answer": "**empty**",
  "no answer": "no answer",
};

function wordFor(told: Told): string {
  return typeof told === "number" ? `${told}` : words[told];
}

/** Trials that agree are one line; the others say how many of them there were. */
function cell(scenario: Scenario, trials: readonly Trial[]): string {
  return counted(trials.map((trial) => trialText(scenario, trial)));
}

function trialText({ first, insists }: Scenario, { runs, told }: Trial): string {
  const last = told.at(-1) ?? "no answer";
  const forHowLong = insists && isRefusal(last) ? ` for ${patienceMs / 1_000} s` : "";
  const begun = told[0] ?? "no answer";
  const odd = told.length > 1 && begun !== first ? ` (first: ${wordFor(begun)})` : "";
  return `${runs} · ${wordFor(last)}${forHowLong}${odd}`;
}

function crashCell({ survivors, keyLeftMs }: Crash): string {
  const each = survivors.map(
    ({ runs, told }) => `${runs} · ${wordFor(told.at(-1) ?? "no answer")}`,
  );
  const times = survivors.map(({ lockedOutMs }) => lockedOutMs);
  const longest = times.includes(undefined)
    ? `> ${crashBoundMs / 1_000} s`
    : `${(Math.max(...times.map(Number)) / 1_000).toFixed(1)} s`;
  return `${counted(each)} · ${longest}${keyText(keyLeftMs)}`;
}

function keyText(ms: number | undefined): string {
  if (ms === undefined) return "";
  if (ms < 0) return " (key without expiry)";
  return ms < 120_000
    ? ` (key: ${(ms / 1_000).toFixed(1)} s)`
    : ` (key: ${(ms / 3_600_000).toFixed(1)} h)`;
}

function counted(texts: readonly string[]): string {
  const kinds = new Map<string, number>();
  for (const text of texts) kinds.set(text, (kinds.get(text) ?? 0) + 1);
  if (kinds.size === 1) return texts[0] ?? "";
  return [...kinds].map(([text, count]) => `${count}×: ${text}`).join("<br>");
}

/** Of the submissions that were to be one order and were sent twice. */
function unwantedOrders({ trials }: Played): string {
  const once = [...trials].filter(([{ wanted }]) => wanted === 1).flatMap(([, played]) => played);
  return `${once.filter(({ runs }) => runs > 1).length} of ${once.length}`;
}

function wrongAnswers({ trials, crash }: Played): number {
  const played = [...[...trials.values()].flat(), ...crash.survivors];
  return played.flatMap(({ told }) => told).filter(isWrong).length;
}

export interface Conditions {
  readonly trials: number;
  readonly crashUsers: number;
  readonly server: string;
  /** Of the frameworks, the clients and the libraries. */
  readonly versions: Readonly<Record<string, string>>;
}

export function pageOf(all: readonly Played[], conditions: Conditions): string {
  const { trials, crashUsers, server, versions } = conditions;
  const named = Object.entries(versions).map(([name, version]) => `${name} ${version}`);
  const restarts = all.map(({ crash }) => crash.restartMs);
  const ended = all.filter((played) => played.ended > 0);
  return `# Once: the neighbours

\`npm run lab -- neighbours\` measures all this and writes this page. It sends the same requests over real HTTP to shops that differ in the protection before \`POST /orders\`. ${cpus().length} CPUs, Node ${process.version}, ${server}, ${named.join(", ")}; everything on one machine, over loopback. Each shop is a process of its own. Its library keeps its records in a Redis of its own.

The handler counts its runs outside the process, works for 50 ms and answers 201 with a body that names the order, the user and the item; each run makes another order. Every request has the headers \`Idempotency-Key\` and \`x-user-id\` and uses a connection of its own. Each scenario is played ${trials} times with new users and new keys; in the crash, ${crashUsers} users' orders are under way in the one process that is killed.

${tableOf(all)}
${notesOf(all)}
A cell has the number of runs of the handler, and the last answer that the client got. If trials differ, the cell counts each result; such a race ends differently from run to run.

- *same*: the first answer again; status, media type and body are the same, the body byte for byte.
- *new order*: the answer of another run. After a throw and after a crash the client wants a new order. For another user it is an order of their own, and with another payload it is a second order under one key. In the other columns it is a second order of one submission: *two orders for one* counts those of the double clicks, the lost answers, the 100 KB and the streams.
- *other user's*, *other payload's*, *altered*, *empty*: a success that is not the answer to this request. The last column counts these as wrong answers.
- a number: the status of a refusal or of an error. "for ${patienceMs / 1_000} s": the client asked again every 250 ms for that time, and got that status to the end.
- *(first: …)*: the answer of the first client, if that answer is not its order.

The scenarios:

${scenarios.map(({ name, what }) => `- *${name}*: ${what}.`).join("\n")}
- *crash*: the handler's first run works for 10 s. During that run the process is killed by SIGKILL and restarted, and the client sends the same request every 250 ms. The time is from the kill to an answer other than 409 and 5xx, and includes the restart of the process, ${seconds(Math.min(...restarts))} to ${seconds(Math.max(...restarts))} s; the client waits for at most ${crashBoundMs / 1_000} s. In brackets: how long Redis would have kept the key that the order had left, at the kill.

${ended.length === 0 ? "No shop's process ended by itself." : `Processes that ended by themselves: ${ended.map(({ name, ended }) => `${name} ${ended}`).join(", ")}.`}

## Settings

Each library is set up as its own README says, with its defaults and its Redis adapter. The idempotency libraries do not get the user, because none of their READMEs asks for it. An application that makes the user a part of the key changes the column of the two users.

${all.map(({ name, settings }) => `- **${name}**: ${settings}`).join("\n")}

The Express shops have an error handler that answers JSON with \`res.json\`, so that libraries that look at \`res.send\` see its answer. They would not see the answer of Express's own error handler.

## Not run

The npm registry that the lab uses did not have these libraries, so they could not be installed: @nestarc/idempotency, @node-idempotency/express, @idempot/express (its Redis store is there, the core that it needs is not) and hono-idempotency. The registry has express-idempotency 1.0.6, not 2.0.
`;
}

function notesOf(all: readonly Played[]): string {
  const notes = all.flatMap(({ name, notes = {} }) =>
    Object.entries(notes).map(([scenario, note]) => `\n† ${name}, *${scenario}*: ${note}\n`),
  );
  return notes.join("");
}

function seconds(ms: number): string {
  return (ms / 1_000).toFixed(1);
}
