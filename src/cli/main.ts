import { type ParseArgsConfig, parseArgs } from "node:util";
import { submitKey } from "../lock/submit-key.ts";
import { type Connection, connect } from "./connect.ts";
import { doctor } from "./doctor.ts";
import { exitCode, toCliError, UsageError } from "./failure.ts";
import { free } from "./free.ts";
import { list } from "./list.ts";
import { show } from "./show.ts";
import { hasOuterBlanks, program, quoted, type Terminal, visible } from "./terminal.ts";
import { watch } from "./watch.ts";

/** Passed to a command. */
export interface Context {
  readonly args: Arguments;
  readonly terminal: Terminal;
  /** Connects. Called once everything that was typed has been checked. */
  open(): Promise<Connection>;
}

type Options = NonNullable<ParseArgsConfig["options"]>;

interface Command {
  /** Resolves to the exit code. */
  readonly run: (context: Context) => Promise<number>;
  /** Whether it is about one user, whose id is its argument. */
  readonly takesUser: boolean;
  readonly about: string;
  /** Its own options, for the parser and for the help. */
  readonly options: Options;
  readonly help: string;
}

const text = { type: "string" } as const;
const flag = { type: "boolean" } as const;
const prefix = { prefix: text };
const prefixes = { prefix: { type: "string", multiple: true } } as const;

const prefixHelp = `
  --prefix <text>          the keyPrefix of the lock; default lock:submit:`;
const prefixesHelp = `
  --prefix <text>          the keyPrefix of a lock, may be repeated; default lock:submit:`;

export const commands: Readonly<Record<string, Command>> = {
  show: {
    run: show,
    takesUser: true,
    about: "Shows what is known of a user's lock, and what to do.",
    options: prefix,
    help: prefixHelp,
  },
  free: {
    run: free,
    takesUser: true,
    about: "Takes a user's lock away: its holder has to stop before the next order may start.",
    options: { id: text, reason: text, by: text, "dry-run": flag, now: flag, ...prefix },
    help: `
  --id <id>                the id that show printed; asked for on a terminal
  --reason <text>          the reason, for the audit line; asked for on a terminal
  --by <text>              the person who frees; default $SUDO_USER or $USER, and the host
  --dry-run                only print what would happen
  --now                    let the next order start at once, although the holder may still be at
                           work: two orders and two charges are possible${prefixHelp}`,
  },
  list: {
    run: list,
    takesUser: false,
    about: "Lists the locks, the longest held first. Needs +scan.",
    options: { state: text, older: text, limit: text, budget: text, "no-ids": flag, ...prefixes },
    help: `
  --state <state,…>        only these: working, silent, unknown, freed, cooldown, foreign
  --older <time>           only locks held at least this long, such as 30s; locks of unknown age
                           are always listed
  --limit <count>          show at most this many locks; default 100
  --budget <time>          scan keys for at most this long; default 10s
  --no-ids                 leave the user ids out${prefixesHelp}`,
  },
  watch: {
    run: watch,
    takesUser: true,
    about: "Prints each change of a user's lock, which it looks at every 200 ms.",
    options: { for: text, ...prefix },
    help: `
  --for <time>             end after this long, such as 30s${prefixHelp}`,
  },
  doctor: {
    run: doctor,
    takesUser: false,
    about: "Checks a Redis server for settings that lose or refuse locks, and suggests fixes.",
    options: { ttl: text, budget: text, ...prefixes },
    help: `
  --ttl <time>             the ttlMs of the lock; default 10s
  --budget <time>          scan keys for at most this long; default 2s${prefixesHelp}`,
  },
};

/** Options of every command. */
export const commonOptions: Options = {
  ...{ url: text, cluster: flag, sentinel: text, master: text, "tls-ca": text },
  ...{ "ioredis-prefix": text, config: text, json: flag, help: { ...flag, short: "h" } },
};

const commonHelp = `
  --json                   JSON on stdout, times in milliseconds
  --help                   this text

Where Redis is:
  --url <url>              redis://user:password@host:port/db, or rediss:// for TLS;
                           default $REDIS_URL
  --cluster                the URL is of a node of a Cluster
  --sentinel <host:port,…> the Sentinels; user, password and db are those of the URL
  --master <name>          the master's name at the Sentinels
  --tls-ca <file>          the certificate authority of a server that uses TLS, as PEM
  --ioredis-prefix <text>  the keyPrefix of the shop's ioredis client
  --config <file>          a module that default-exports the shop's SubmitLock, instead of a URL;
                           list and doctor also need its client as the export \`redis\``;

/** The text of `submit-lock --help`, or of `submit-lock <command> --help`. */
export function helpOf(name?: string): string[] {
  const usage = (of: string) => `${of}${commands[of]?.takesUser ? " <user>" : ""}`;
  if (name !== undefined) {
    const { about, help } = commands[name] as Command;
    const head = `${program} ${usage(name)} [options]`;
    return `${head}\n\n${about}\n${help}${commonHelp}`.split("\n");
  }
  return [
    `${program} <command> [options]`,
    "",
    ...Object.entries(commands).map(([of, { about }]) => `  ${usage(of).padEnd(15)}${about}`),
    "",
    `Where Redis is: REDIS_URL or --url; see ${program} <command> --help.`,
    "Exit codes: 0 done, 1 doctor found a failure or free met another holder, 2 usage or no ioredis,",
    "  3 no Redis within 2 s of connecting, 4 not permitted.",
  ];
}

/** Options that another command needs to look at the same lock. None of them is a secret. */
const repeated = ["cluster", "sentinel", "master", "ioredis-prefix", "config", "prefix"];

/** In milliseconds. */
const units: Readonly<Record<string, number>> = { ms: 1, s: 1e3, m: 6e4, min: 6e4, h: 3.6e6 };

/** The words behind the name of a command, checked against its options. */
export class Arguments {
  readonly name: string;
  /** `""` where the command is not about one user. */
  readonly user: string;
  readonly #values: Readonly<Record<string, unknown>>;

  /**
   * @param argv the words behind the name of the program.
   * @throws UsageError.
   */
  constructor(argv: readonly string[]) {
    const [name = "", ...args] = argv;
    const names = Object.keys(commands);
    if (!names.includes(name)) {
      const got = name === "" ? "none" : `"${name}"`;
      throw new UsageError(
        `expected a command (${names.join(", ")}) as the first argument, got ${got}. Try: ${program} --help`,
      );
    }
    const { options, takesUser } = commands[name] as Command;
    const { values, positionals } = parsed(name, args, { ...options, ...commonOptions });
    const [user] = positionals;
    const surplus = positionals[takesUser ? 1 : 0];
    if (values["help"] === undefined) {
      if (takesUser && user === undefined) {
        throw new UsageError(`${name} needs a user id, as in: ${program} ${name} 42`);
      }
      if (surplus !== undefined) {
        throw new UsageError(
          `${name} takes ${takesUser ? "one user id" : "options only"}, got "${surplus}" as well. A user id with spaces needs quotes`,
        );
      }
    }
    this.name = name;
    this.user = takesUser ? (user ?? "") : "";
    this.#values = values;
  }

  has(option: string): boolean {
    return this.#values[option] !== undefined;
  }

  text(option: string): string | undefined {
    return this.texts(option)[0];
  }

  /** All values of an option that may be repeated. */
  texts(option: string): readonly string[] {
    return [this.#values[option]].flat().filter((each) => typeof each === "string");
  }

  /** A whole number of at least 1. */
  count(option: string, preset: number): number {
    const typed = this.text(option);
    if (typed === undefined) return preset;
    if (!/^[1-9]\d{0,8}$/.test(typed)) {
      throw new UsageError(`--${option}: expected a whole number from 1 on, got "${typed}"`);
    }
    return Number(typed);
  }

  /** A time such as `500ms`, `30s`, `2min` or `1h`, in milliseconds. */
  duration(option: string, presetMs: number): number {
    const typed = this.text(option);
    if (typed === undefined) return presetMs;
    const [, digits, unit = ""] = /^(\d+(?:\.\d+)?)(ms|s|m|min|h)$/.exec(typed) ?? [];
    const ms = Number(digits) * (units[unit] ?? Number.NaN);
    if (!Number.isFinite(ms)) {
      throw new UsageError(`--${option}: expected a time such as 30s, 2min or 1h, got "${typed}"`);
    }
    return ms;
  }

  /** Another command about the same user and the same lock, as a person types it. */
  suggest(command: string): string {
    const options = repeated.flatMap((option) => {
      if (!this.has(option)) return [];
      const values = this.texts(option);
      return values.length === 0
        ? [`--${option}`]
        : values.map((value) => `--${option} ${quoted(value)}`);
    });
    const user = `${this.user.startsWith("-") ? "-- " : ""}${quoted(this.user)}`;
    return [program, command, ...options, user].join(" ");
  }
}

function parsed(name: string, args: string[], options: Options) {
  const config = { args, options, allowPositionals: true, tokens: true } as const;
  let result: ReturnType<typeof parseArgs<typeof config>>;
  try {
    result = parseArgs(config);
  } catch (error) {
    const [message = ""] = (error as Error).message.split(". To specify");
    throw new UsageError(`${message}. Try: ${program} ${name} --help`);
  }
  const given = result.tokens.flatMap((token) => (token.kind === "option" ? [token.name] : []));
  const twice = given.find((each, at) => given.indexOf(each) < at && !options[each]?.multiple);
  if (twice !== undefined) throw new UsageError(`--${twice} may be given only once`);
  return result;
}

/**
 * Runs one command.
 *
 * @param argv the words behind the name of the program.
 * @returns the exit code.
 */
export async function main(argv: readonly string[], terminal: Terminal): Promise<number> {
  let connection: Connection | undefined;
  try {
    if (["--help", "-h", "help"].includes(argv[0] ?? "")) {
      terminal.print(helpOf());
      return exitCode.done;
    }
    const args = new Arguments(argv);
    const { run, takesUser } = commands[args.name] as Command;
    if (args.has("help")) {
      terminal.print(helpOf(args.name));
      return exitCode.done;
    }
    // Checked before there is a connection: an invalid user id does not concern Redis.
    if (takesUser) submitKey("", args.user);
    if (hasOuterBlanks(args.user)) {
      terminal.warn([
        `The user id "${visible(args.user)}" has blanks at its ends. Were they pasted?`,
      ]);
    }
    const open = async () => {
      connection = await connect(args, terminal.env);
      return connection;
    };
    return await run({ args, terminal, open });
  } catch (error) {
    const failure = toCliError(error, connection?.address ?? "Redis");
    // The message may repeat an argument.
    terminal.warn([`submit-lock: ${visible(failure.message)}`]);
    return failure.exitCode;
  }
}
