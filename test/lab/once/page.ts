import { cpus } from "node:os";
import { isRefusal, isWrong, type Told } from "./client.ts";
import {
  type Crash,
  crashBoundMs,
  patienceMs,
  type Scenario,
  scenarios,
  type Trial,
} from "./scenarios.ts";
import type { Hello } from "./shop.ts";

export interface Played extends Hello {
  readonly trials: ReadonlyMap<Scenario, readonly Trial[]>;
  readonly crash: Crash;
  /** How often the shop's process ended by itself. */
  readonly ended: number;
}

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
  return `${runs}: ${wordFor(last)}${forHowLong}${odd}`;
}

function crashCell({ survivors, keyLeftMs }: Crash): string {
  const each = survivors.map(({ runs, told }) => `${runs}: ${wordFor(told.at(-1) ?? "no answer")}`);
  const times = survivors.map(({ lockedOutMs }) => lockedOutMs);
  const longest = times.includes(undefined)
    ? `> ${crashBoundMs / 1_000} s`
    : `${(Math.max(...times.map(Number)) / 1_000).toFixed(1)} s`;
  return `${counted(each)}, ${longest}${keyText(keyLeftMs)}`;
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
  return [...kinds].map(([text, count]) => `${count} × (${text})`).join("<br>");
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

interface Conditions {
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
  const others = scenarios.filter(({ name }) => !name.startsWith("double click"));
  return `# Once: the neighbours

The same requests over real HTTP to shops that differ in the protection before \`POST /orders\`: the last two columns are the result. \`npm run lab -- neighbours\` measures and writes this page.

${cpus().length} CPUs, Node ${process.version}, ${server}, ${named.join(", ")}; everything on one machine, over loopback. Each shop is a process, and each library has a Redis of its own.

The handler counts its runs outside the process, works for 50 ms and answers 201 with a body that names the order, the user and the item. Every request has the headers \`Idempotency-Key\` and \`x-user-id\`. Each scenario is played ${trials} times with new users and keys; in the crash, ${crashUsers} users' orders are under way.

${tableOf(all)}
${notesOf(all)}
A cell has the handler's runs and the client's last answer; if trials differ, it counts each result.

- *same*: the first answer again, byte for byte.
- *new order*: the answer of another run. It is right for another user, after a throw and after a crash. Elsewhere it is a second order of one submission: *two orders for one* counts those of the double clicks, the lost answers, the 100 KB and the streams.
- *other user's*, *other payload's*, *altered*, *empty*: a success that is not the answer to this request: a wrong answer.
- a number: the status of a refusal or an error. "for ${patienceMs / 1_000} s": the client asked again every 250 ms, and got that status to the end.
- *(first: …)*: the answer of the first client, if that answer is not its order.

The scenarios. The second request is sent 100 ms after the first answer, where nothing else is said.

- *double click*: the same request twice, so long apart.
${others.map(({ name, what }) => `- *${name}*: ${what}.`).join("\n")}
- *crash*: the process is killed by SIGKILL during a run of 10 s and restarted; the client sends the same request every 250 ms. The time is from the kill to an answer other than 409 and 5xx, with the restart, ${seconds(Math.min(...restarts))} to ${seconds(Math.max(...restarts))} s, and ${crashBoundMs / 1_000} s at most. In brackets: the life of the key that the order had left.

${ended.length === 0 ? "No shop's process ended by itself." : `Processes that ended by themselves: ${ended.map(({ name, ended }) => `${name} ${ended}`).join(", ")}.`}

## Settings

Each library is set up as its README says, with its defaults and its Redis adapter, on Express. No README of an idempotency library asks for the user; an application that makes the user a part of the key changes the column of the two users.

${all.map(({ name, settings }) => `- **${name}**: ${settings}`).join("\n")}

The Express shops have an error handler that answers with \`res.json\`, because libraries that look at \`res.send\` do not see Express's own.

## Not run

Not in the registry that the lab uses: @nestarc/idempotency, @node-idempotency/express, @idempot/express (its core), hono-idempotency, and 2.0 of express-idempotency.
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
