import { type ParseArgsConfig, parseArgs } from "node:util";
import { is22 } from "../lock/submission.ts";
import type { SubmitLock } from "../lock/submit-lock.ts";
import type { ClientPort } from "../stores/redis/clients/port.ts";
import { describe } from "../validation.ts";
import { CliError } from "./failure.ts";
import { program, quoted, type Terminal } from "./terminal.ts";

export interface Context {
  readonly args: Arguments;
  readonly terminal: Terminal;
  /** Connects to Redis. Check the arguments before, so that a wrong one is reported at once. */
  open(): Promise<CliTarget>;
}

/** The connection of one command. The end of the process closes it. */
export interface CliTarget {
  /** The address of Redis for messages, without user and password. */
  readonly address: string;
  /** `undefined` where the module of `--config` does not export `redis`. */
  readonly client?: ClientPort;
  /** The database that Redis has selected. `undefined` on a Cluster, and without a client. */
  readonly database?: number | undefined;
  readonly locks: readonly [CliLock, ...CliLock[]];
  /** The `keyPrefix` of the client, which puts it in front of every key; `""` for none. */
  readonly clientPrefix: string;
  readonly user?: string | undefined;
  /** A replica may be behind its master or cut off from it, and then shows old locks. */
  readonly isReplica?: boolean;
}

export const lockMembers = [
  "check",
  "forget",
  "free",
  "inspect",
  "keyFor",
  "keyPrefix",
  "lookUp",
] as const;

export type CliLock = Pick<SubmitLock, (typeof lockMembers)[number]>;

/** The help of each command. `parsed` takes the options from it; `<user>` requires a user id. */
const helps: Readonly<Record<string, string>> = {
  show: `show <user>
Shows what is known of a user's lock, and what to do.
`,
  free: `free <user>
Takes a user's lock away, and asks its holder to stop.

  --id <id>                the id that show printed; asked for on a terminal
  --reason <text>          the reason, for the audit line; asked for on a terminal
  --by <text>              the person who frees; default $SUDO_USER or $USER, and the host
  --dry-run                only print what would happen
  --now                    let the next order start at once, although the holder may still be at
                           work: two orders and two charges are possible

free --stranded, without a user, deletes the locks that an older program has left. Needs +scan.

  --stranded               every lock that holds --value and, by the rest of its life, is too old
  --value <text>           the value that each of its locks holds, such as 1
  --life <time>            the expiry that each of them begins with, such as 2h
  --older <time>           longer than any order of that program takes, such as 10m
  --budget <time>          look for at most this long; default 10min
`,
  list: `list
Lists the locks, those that may hang and the longest held first. Needs +scan.

  --state <state,…>        only these: working, silent, unknown, freed, cooldown, foreign
  --older <time>           only locks held at least this long, such as 30s, or of unknown age
  --limit <count>          of each prefix, show at most this many locks; default 100
  --budget <time>          look at each prefix for at most this long; default 10s
  --no-ids                 leave the user ids out
`,
  watch: `watch <user>
Looks at a user's lock every 200 ms, and prints each change.

  --for <time>             end after this long, such as 30s
`,
  answers: `answers <user>
Lists the kept answers of a user's orders, the newest first. Needs +scan.

  --body                   print the bodies as well
  --key <key>              with --route: the answer of this Idempotency-Key, without a scan
  --route <text>           the route of --key, such as "POST /orders"
  --submission <id>        only the answer of this id: returned by submissionId, given to once, or
                           the 22 characters of submission.id; without a scan
  --budget <time>          look for at most this long; default 10min
`,
  forget: `forget <user> <id>
Deletes one kept answer: the next retry of that order runs.

  --reason <text>          the reason, for the audit line; asked for on a terminal
  --by <text>              the person who forgets; default $SUDO_USER or $USER, and the host
  --dry-run                only print what would happen
`,
  doctor: `doctor
Checks Redis for settings that lose or refuse locks, and suggests fixes.

  --ttl <time>             the ttlMs of the lock; default 10s
  --budget <time>          each look at the keys of a prefix takes at most this long; default 2s
`,
};

const commonHelp = `  --prefix <text>          the lock's keyPrefix, repeatable without a user; default lock:submit:
  --json                   JSON on stdout, times in milliseconds
  --help                   this text

Where Redis is:
  --url <url>              redis://user:password@host:port/db (TLS: rediss://), or the path of a
                           Unix socket; ?family=0 for IPv4 and IPv6; default $REDIS_URL
  --cluster                the URL is of a node of a Cluster
  --sentinel <host:port,…> the Sentinels; user, password and db are those of the URL
  --master <name>          the master's name at the Sentinels
  --tls-ca <file>          the certificate authority of a server that uses TLS, as PEM
  --ioredis-prefix <text>  the keyPrefix of the shop's Redis client
  --config <file>          a module that default-exports the shop's SubmitLock, instead of a URL;
                           list, answers, forget, doctor and --stranded also need its client as
                           the export \`redis\`; sealed answers are opened by its lock alone`;

export function helpOf(name?: string): string[] {
  if (name !== undefined) {
    const [usage = "", ...lines] = `${helps[name]}${commonHelp}`.split("\n");
    return [`${program} ${usage} [options]`, "", ...lines];
  }
  const about = Object.values(helps).map((help) => {
    const [usage = "", sentence = ""] = help.split("\n");
    return `  ${usage.padEnd(19)}${sentence}`;
  });
  return [
    ...[`${program} <command> [options]`, "", ...about, ""],
    `Where Redis is: REDIS_URL or --url; see ${program} <command> --help.`,
    `The version: ${program} --version.`,
    "Exit codes: 0 done, 1 a failure, another holder or run, or no record in a key, was found,",
    "  2 usage or no client, 3 Redis silent for 2 s or unable to serve now, 4 not permitted.",
  ];
}

const units: Readonly<Record<string, number>> = { ms: 1, s: 1e3, m: 6e4, min: 6e4, h: 3.6e6 };

export class Arguments {
  readonly name: string;
  readonly takesUser: boolean;
  readonly user: string = "";
  /** The submission of `forget`. */
  readonly id: string = "";
  readonly #values: Readonly<Record<string, (string | boolean)[] | undefined>>;

  constructor([name = "", ...args]: readonly string[]) {
    const help = Object.hasOwn(helps, name) ? helps[name] : undefined;
    if (help === undefined) {
      const names = Object.keys(helps).join(", ");
      const got = name === "" ? "none" : describe(name);
      const text = `expected a command (${names}) as the first argument, got ${got}`;
      throw new CliError(`${text}. Try: ${program} --help`);
    }
    const { values, positionals } = parsed(name, args, help + commonHelp);
    const isForMany = values["stranded"] !== undefined && positionals.length === 0;
    this.takesUser = help.startsWith(`${name} <user>`) && !isForMany;
    this.name = name;
    this.#values = values;
    const mayRepeat = this.takesUser ? undefined : "prefix";
    const repeats = (option: string) => option !== mayRepeat && values[option]?.[1] !== undefined;
    const twice = Object.keys(values).find(repeats);
    if (twice !== undefined) throw new CliError(`--${twice} may be given only once`);
    if (this.has("help")) return;
    for (const [option, given = []] of Object.entries(values)) {
      if (option !== "url") for (const each of given) refuseAddress(each, `in --${option}`);
    }
    if (this.takesUser && positionals.length === 0) {
      throw new CliError(`${name} needs a user id, as in: ${program} ${name} 42`);
    }
    if (this.takesUser) this.user = positionals.shift() ?? "";
    refuseAddress(this.user, "in the place of the user id");
    const takesId = help.startsWith(`${name} <user> <id>`);
    if (takesId && !is22(positionals[0])) {
      const text = `${name} needs a user id and the 22 characters of a submission`;
      throw new CliError(`${text}, as answers prints them: ${this.suggest("answers")}`);
    }
    if (takesId) this.id = positionals.shift() ?? "";
    if (positionals.length === 0) return;
    const ids = takesId ? "one user id and one submission" : "one user id";
    const most = this.takesUser ? ids : "options only";
    const text = `${name} takes ${most}, and got ${describe(positionals[0])} as well`;
    throw new CliError(`${text}. Put a value that has spaces in quotes`);
  }

  has(option: string): boolean {
    return this.#values[option] !== undefined;
  }

  text(option: string): string | undefined {
    return this.texts(option)[0];
  }

  texts(option: string): readonly string[] {
    return (this.#values[option] ?? []).filter((value) => typeof value === "string");
  }

  /** A time such as `500ms`, `30s`, `2min` or `1h`, in milliseconds. */
  duration(option: string, presetMs: number): number {
    const typed = this.text(option);
    if (typed === undefined) return presetMs;
    const [, digits, unit = ""] = /^(\d+(?:\.\d+)?)(ms|s|m|min|h)$/.exec(typed) ?? [];
    const ms = Number(digits) * (units[unit] ?? Number.NaN);
    if (Number.isFinite(ms)) return ms;
    throw new CliError(
      `--${option}: expected a time such as 30s, 2min or 1h, got ${describe(typed)}`,
    );
  }

  /** Returns a command line for the same Redis, without its password: tickets keep such lines. */
  suggest(command: string, user: string = this.user, prefix?: string, id?: string): string {
    const options = whereOptions.flatMap((option) => {
      const given = this.#values[option] ?? [];
      const values =
        option === "prefix" && given.length > 0 && prefix !== undefined ? [prefix] : given;
      return values.map((value) => {
        if (typeof value === "boolean") return `--${option}`;
        const shown = value.replace(/^(\s*rediss?:\/\/[^:/@]*):.*@/i, "$1:***@");
        return `--${option}${shown.startsWith("-") ? "=" : " "}${quoted(shown)}`;
      });
    });
    const about = [user, id ?? ""].filter((each) => each !== "");
    const dashes = about.some((each) => each.startsWith("-")) ? ["--"] : [];
    return [program, command, ...options, ...dashes, ...about.map(quoted)].join(" ");
  }
}

/** Messages repeat what was given, and must not show a password. */
function refuseAddress(given: string | boolean, where: string): void {
  if (!/\brediss?:\/\/.*@/is.test(String(given))) return;
  throw new CliError(`the address of Redis belongs in --url or REDIS_URL, and is ${where}`);
}

/** The options that say which Redis, and which locks in it. */
const whereOptions = [...commonHelp.matchAll(/^ {2}--([\w-]+)/gm)]
  .map(([, option = ""]) => option)
  .filter((option) => option !== "json" && option !== "help");

function parsed(name: string, args: string[], help: string) {
  // `multiple`, because otherwise the last value of a repeated option would win without an error.
  const options: ParseArgsConfig["options"] = {};
  for (const [, option = "", value] of help.matchAll(/^ {2}--([\w-]+)( <)?/gm)) {
    options[option] = { type: value === undefined ? "boolean" : "string", multiple: true };
  }
  options["help"] = { type: "boolean", short: "h", multiple: true };
  try {
    const given = { args: withIds(args), options, allowPositionals: true };
    const { values, positionals } = parseArgs(given);
    return { values: values as Record<string, (string | boolean)[]>, positionals };
  } catch (error) {
    const whole = (error as Error).message;
    const [message = ""] = whole.split(/\.\n|\. To specify/);
    const [, hyphen] = /'(--[\w-]+=-)XYZ'/.exec(whole) ?? [];
    const more = hyphen === undefined ? "" : `. A value that begins with a hyphen: ${hyphen}…`;
    throw new CliError(`${message}${more}. Try: ${program} ${name} --help`);
  }
}

/** Keeps ids that begin with a hyphen (1 in 64) from being parsed as options, which are shorter. */
function withIds(args: readonly string[]): string[] {
  if (args.includes("--")) return [...args];
  const options: string[] = [];
  const ids: string[] = [];
  for (const each of args) {
    if (!each.startsWith("-") || !is22(each)) options.push(each);
    else if (options.at(-1) === "--submission") options.push(`${options.pop()}=${each}`);
    else ids.push(each);
  }
  return ids.length === 0 ? options : [...options, "--", ...ids];
}
