import { isUtf8 } from "node:buffer";
import { derivedId, keyId } from "../http/submission.ts";
import { parseIdempotencyKey } from "../idempotency-key.ts";
import type { StoredAnswer } from "../lock/record.ts";
import type { LookUp } from "../lock/repeats.ts";
import { identify, is22 } from "../lock/submission.ts";
import { recordKeyOf, slotOf } from "../stores/redis/clients/slots.ts";
import { performance, sleep } from "../time.ts";
import { describe } from "../validation.ts";
import { answerOf, answerWithinMs, redisOf } from "./connect.ts";
import type { Arguments, CliLock, CliTarget, Context } from "./context.ts";
import { CliError, exitCode, toCliError } from "./failure.ts";
import { reasonOf } from "./free.ts";
import { clientOf, refuseNodeOfCluster, scanKeys, scanText } from "./scan.ts";
import {
  columns,
  count,
  duration,
  json,
  type Paint,
  personOf,
  plural,
  quoted,
  visible,
  visibleUser,
} from "./terminal.ts";

type Completed = Extract<LookUp, { outcome: "completed" }>;

interface KeptAnswer extends Completed {
  /** How long the answer is still kept, in ms; `undefined` if that is not known, ∞ without an end. */
  readonly expiresInMs?: number;
}

type Looked = Exclude<LookUp, Completed> | KeptAnswer;

export async function answers({ args, terminal, open }: Context): Promise<undefined> {
  const [key, route, submission] = ["key", "route", "submission"].map((name) => args.text(name));
  if ((key === undefined) !== (route === undefined)) {
    throw new CliError('--key and --route "POST /orders" belong together');
  }
  const budgetMs = args.duration("budget", 600_000);
  const idsIn = idsOf(args.user, key, route, submission);
  const connection = await open();
  const [lock] = connection.locks;
  const records = await recordsOf(connection, lock, args.user);
  const found: KeptAnswer[] = [];
  const isScan = key === undefined && submission === undefined;
  const look = async (id: string): Promise<void> => {
    const seen = await records.look(id);
    if (seen.outcome === "completed") found.push(seen);
    if (seen.outcome !== "unknown") return;
    // In a scan, one key of another program must not hide the answers.
    if (!isScan) throw records.noRecord(id);
    terminal.warn([records.noRecord(id).message]);
  };
  let end = "";
  let isComplete = true;
  if (!isScan) {
    for (const id of idsIn(lock.keyFor(args.user))) await look(id);
  } else {
    await refuseNodeOfCluster(connection);
    const ids = new Set<string>();
    const scan = await scanKeys(
      connection,
      records.start,
      budgetMs,
      async (keys) => {
        for (const each of keys) {
          const id = each.slice(records.start.length);
          if (!is22(id) || ids.has(id)) continue;
          ids.add(id);
          await look(id);
        }
        return ids.size >= mostAnswers ? `The scan stops at ${count(mostAnswers)}` : undefined;
      },
      (looked) => terminal.progress(`looked at ${count(looked)} keys`),
      records.nodes,
    );
    terminal.progress("");
    end = scanText(scan);
    isComplete = scan.partial === undefined;
  }
  found.sort((one, other) => other.completedAt - one.completedAt);
  if (args.has("json")) {
    const answers = found.map((each) => shown(each, args.has("body")));
    terminal.print([json({ userId: args.user, answers, isComplete })]);
    return;
  }
  const user = visibleUser(args.user);
  const number = found.length === 0 ? "no kept answer" : plural(found.length, "kept answer");
  const at = `${lock.keyPrefix} on ${redisOf(connection)}`;
  const lines = [terminal.paint("bold", `User ${user} has ${number} (${at}).`)];
  if (found.length > 0) {
    lines.push(...answerTable(found, args.has("body"), terminal.paint), ...meaning);
    const { id } = found[0] as KeptAnswer;
    const command = `forget --reason ${quoted("a wrong answer")}`;
    lines.push(
      `Only if the order of the first row was not placed, let its retry run: ${args.suggest(command, args.user, undefined, id)}`,
    );
  } else {
    lines.push(
      isScan
        ? "In the keys looked at, no answer for repeats of this user is kept."
        : `No answer is kept for this key and route, or this submission${unlessSealed(args)}. Leave these options out to see all answers of the user.`,
    );
  }
  if (found.some(({ answer }) => answer.unreadable === "sealed with another key")) {
    lines.push(
      args.has("config")
        ? "The lock of --config lacks the key of these sealed answers: add it to its seal.keys."
        : "Sealed answers are opened with the shop's own lock: give its module with --config.",
    );
  }
  terminal.print(end === "" ? lines : [...lines, end]);
}

/** Only the shop's own lock has the seal, with which the key of a sealed answer is made. */
function unlessSealed(args: Arguments): string {
  return args.has("config")
    ? ""
    : ", unless it is sealed: then give the module of the shop's lock with --config";
}

/** The scan stops at this many answers: no person reads more. */
const mostAnswers = 10_000;

const meaning = [
  "Each row is one submission that is not run again: a repeat gets this answer, or a 409.",
  "A repeat leaves no trace here, and neither does an order without an id. Two rows are two submissions: compare their orders and payments.",
];

export async function forget({ args, terminal, open }: Context): Promise<number> {
  const isDry = args.has("dry-run");
  if (!args.has("reason") && !isDry && !terminal.canAsk) {
    throw new CliError("without a terminal, forget needs --reason");
  }
  const connection = await open();
  const { address } = connection;
  const [lock] = connection.locks;
  const user = visibleUser(args.user);
  const records = await recordsOf(connection, lock, args.user);
  const seen = await records.look(args.id);
  if (seen.outcome === "unknown") throw records.noRecord(args.id);
  const end = (outcome: string, text: string, more: object = {}): number => {
    const isDone = outcome === "forgotten" || outcome === "none";
    const result = { userId: args.user, id: args.id, outcome, ...more };
    if (args.has("json")) terminal.print([json(result)]);
    else if (isDone) terminal.print([text]);
    else terminal.warn([text]);
    return isDone ? exitCode.done : exitCode.found;
  };
  const none = `No answer of submission ${visible(args.id)} is kept for user ${user}${unlessSealed(args) || ": its next retry runs"}.`;
  const inFlight = `Nothing was changed: user ${user} is placing this order right now. Wait for its end: ${args.suggest("show", args.user)}`;
  if (seen.outcome === "in-flight") return end(seen.outcome, inFlight);
  if (seen.outcome !== "completed") return end("none", none);
  const risk =
    "Without this answer, the next retry of this order runs: if the order was placed, a second order and a second charge are possible. Look for both first.";
  if (isDry) {
    const text = `Would forget the answer above. Nothing was changed. ${risk}`;
    if (!args.has("json")) terminal.print(answerTable([seen], false, terminal.paint));
    return end("forgotten", text, { answer: shown(seen, false), dryRun: true });
  }
  if (terminal.canAsk) terminal.warn([...answerTable([seen], false, terminal.paint), risk]);
  const reason = await reasonOf({ args, terminal });
  const by = args.text("by") ?? personOf(terminal.env);
  const { outcome } = await answerOf(address, lock.forget(args.user, { id: args.id, by, reason }));
  if (outcome === "in-flight") return end(outcome, inFlight);
  if (outcome === "none") return end(outcome, none);
  if (outcome === "changed") {
    return end(outcome, "Nothing was changed: a newer run has recorded its answer. Look again.");
  }
  const answer = shown(seen, false);
  const code = end(
    outcome,
    `Forgotten by ${visible(by)} (${visible(reason)}). The next retry of submission ${visible(args.id)} runs.`,
    { answer },
  );
  const audit = {
    ...{ event: "submit-lock forget", time: new Date().toISOString(), userId: args.user },
    ...{ id: args.id, reason, by, outcome, answer },
    ...{ redis: address, database: connection.database, key: lock.keyFor(args.user) },
  };
  terminal.warn([json(audit)]);
  return code;
}

/**
 * Returns a function from the key of the user's lock to the submissions to look up: the 22
 * characters that a guard, or `lock.once`, makes of the client's own key or id.
 * @throws CliError for a wrong key or route, before Redis is asked.
 */
function idsOf(
  user: string,
  key: string | undefined,
  route: string | undefined,
  submission: string | undefined,
): (lockKey: string) => readonly string[] {
  const ids: ((lockKey: string) => string)[] = [];
  if (key !== undefined && route !== undefined) {
    // A guard leaves out the query, which a route copied from an access log has.
    const [, method, path] = /^([A-Z]+) (\/[^\s?]*)(\?\S*)?$/.exec(route) ?? [];
    const parsed = parseIdempotencyKey(key);
    if (path === undefined) {
      throw new CliError(`--route: expected a text such as "POST /orders", got ${describe(route)}`);
    }
    if (parsed.kind !== "key")
      throw new CliError(
        `--key: expected the Idempotency-Key as it was sent, got ${describe(key)}`,
      );
    ids.push((lockKey) => keyId(user, lockKey, `${method} ${path}`, parsed.key));
  }
  if (submission !== undefined) {
    const { id } = identify(user, { id: submission });
    ids.push(
      (lockKey) => derivedId(user, lockKey, submission),
      () => id,
    );
    if (is22(submission)) ids.push(() => submission);
  }
  return (lockKey) => [...new Set(ids.map((each) => each(lockKey)))];
}

/** @throws CliError while a Cluster moves the user's slot: a record there would not be found. */
async function recordsOf(connection: CliTarget, lock: CliLock, user: string) {
  const { address, clientPrefix } = connection;
  const client = clientOf(connection);
  const lockKey = lock.keyFor(user);
  const masters = client.servers();
  const name = client.nodeOf(slotOf(clientPrefix + lockKey));
  const ofSlot = masters.filter((master) => master.address === name);
  /** The node of the user's slot, as far as the client knows it; else all masters. */
  const nodes = ofSlot.length === 0 ? masters : ofSlot;
  /** The beginning of the keys of the user's records, without the client's prefix. */
  const start = recordKeyOf(client, lockKey, "");
  if (client.isCluster) {
    // Two keys: a slot that moves refuses them, unless it holds both.
    const asked = client.eval("return 1", { keys: [lockKey, `${start}probe`], args: [] });
    await answerOf(address, asked).catch((error: Error) => {
      throw toCliError(error, address);
    });
  }
  /** `unknown`: the key holds another program's value. Throws where Redis does not answer. */
  const look = async (id: string): Promise<Looked> => {
    // Try again for a while: a new connection first asks Redis which database it is in.
    const patience = performance.now() + answerWithinMs;
    const record = { keys: [start + id], args: [] };
    let seen = await lock.lookUp(user, { id });
    while (seen.outcome === "unknown" && performance.now() < patience) {
      await sleep(50);
      seen = await lock.lookUp(user, { id });
    }
    if (seen.outcome === "unknown") {
      // `lookUp` hides the error of Redis, so ask Redis again. The value does not matter.
      const asked = client.eval("return redis.call('GET', KEYS[1])", record);
      await answerOf(address, asked).catch((error: Error) => {
        if (!/WRONGTYPE/.test(error.message)) throw toCliError(error, address);
      });
    }
    if (seen.outcome !== "completed") return seen;
    const life = client.eval("return redis.call('PTTL', KEYS[1])", record);
    const expiresInMs = Number(await answerOf(address, life));
    // Redis lacks this key if the record is sealed: the record's key then has an HMAC of the id.
    if (expiresInMs < -1) return seen;
    // No expiry, as after a migration.
    return { ...seen, expiresInMs: expiresInMs === -1 ? Number.POSITIVE_INFINITY : expiresInMs };
  };
  const noRecord = (id: string) =>
    new CliError(`the key ${visible(start + id)} holds no record`, exitCode.found);
  return { start, nodes, look, noRecord };
}

const heads = ["SUBMISSION", "STATUS", "WHEN", "KEPT FOR", "BYTES", "TYPE"];

function answerTable(found: readonly KeptAnswer[], withBody: boolean, paint: Paint): string[] {
  const rows = found.map(({ ageMs, answer, expiresInMs, id }) => {
    const bytes = bytesOf(answer);
    const when = answer.unreadable ? "?" : `${duration(ageMs)} ago`;
    const keptFor = expiresInMs === undefined ? "?" : duration(expiresInMs);
    const length = bytes === undefined ? "-" : count(bytes.length);
    return [id, statusCell(answer), when, keptFor, length, typeOf(answer)];
  });
  const [head = "", ...lines] = columns([heads, ...rows]);
  return [
    head,
    ...lines.flatMap((line, at) => {
      const { answer } = found[at] as KeptAnswer;
      const shownLine = answer.unreadable ? paint("yellow", line) : line;
      const bytes = withBody ? bytesOf(answer) : undefined;
      return bytes === undefined ? [shownLine] : [shownLine, `  ${visible(bodyText(bytes))}`];
    }),
  ];
}

function statusCell({ returned, status, unreadable }: StoredAnswer): string {
  if (unreadable !== undefined) return "?";
  if (returned !== undefined) return "value";
  return status === 100 ? "done" : `${status}`;
}

function typeOf({ headers, returned, unreadable }: StoredAnswer): string {
  if (unreadable !== undefined) return unreadable;
  return returned !== undefined ? "JSON of once" : visible(`${headers["content-type"] ?? "-"}`);
}

function bytesOf({ body, returned }: StoredAnswer): Uint8Array | undefined {
  return returned === undefined ? body : Buffer.from(JSON.stringify(returned.value) ?? "");
}

function bodyText(bytes: Uint8Array): string {
  const buffer = Buffer.from(bytes);
  return isUtf8(buffer) ? buffer.toString() : `base64:${buffer.toString("base64")}`;
}

function shown({ ageMs, answer, expiresInMs, id }: KeptAnswer, withBody: boolean): object {
  const bytes = bytesOf(answer);
  return {
    ...{ id, status: statusCell(answer), ageMs, expiresInMs, bytes: bytes?.length },
    ...{ type: typeOf(answer), unreadable: answer.unreadable },
    ...(withBody && bytes !== undefined && { body: bodyText(bytes) }),
  };
}
