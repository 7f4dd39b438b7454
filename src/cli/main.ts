import { type ParseArgsConfig, parseArgs } from "node:util";
import { submitKey } from "../lock/submit-key.ts";
import { type Connection, connect } from "./connect.ts";
import { doctor } from "./doctor.ts";
import { exitCode, toCliError, UsageError } from "./failure.ts";
import { free } from "./free.ts";
import { list } from "./list.ts";
import { show } from "./show.ts";
import { program, quoted, type Terminal, visible } from "./terminal.ts";
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
  readonly takesUser?: true;
  /** Its own options, besides those of every command. */
  readonly options: Options;
  /** A sentence, and its options. */
  readonly help: string;
}

// Each may be repeated for the parser, so that a second value is refused and not obeyed.
const text = { type: "string", multiple: true } as const;
const flag = { type: "boolean", multiple: true } as const;

export const commands: Readonly<Record<string, Command>> = {
  show: {
    run: show,
    takesUser: true,
    options: {},
    help: "Shows what is known of a user's lock, and what to do.\n",
  },
  free: {
    run: free,
    takesUser: true,
    options: { id: text, reason: text, by: text, "dry-run": flag, now: flag },
    help: `Takes a user's lock away: its holder has to stop before the next order may start.

  --id <id>                the id that show printed; asked for on a terminal
  --reason <text>          the reason, for the audit line; asked for on a terminal
  --by <text>              the person who frees; default $SUDO_USER or $USER, and the host
  --dry-run                only print what would happen
  --now                    let the next order start at once, although the holder may still be at
                           work: two orders and two charges are possible`,
  },
  list: {
    run: list,
    options: { state: text, older: text, limit: text, budget: text, "no-ids": flag },
    help: `Lists the locks, the longest held first. Needs +scan.

  --state <state,…>        only these: working, silent, unknown, freed, cooldown, foreign
  --older <time>           only locks held at least this long, such as 30s, or of unknown age
  --limit <count>          show at most this many locks; default 100
  --budget <time>          scan keys for at most this long; default 10s
  --no-ids                 leave the user ids out`,
  },
  watch: {
    run: watch,
    takesUser: true,
    options: { for: text },
    help: `Prints each change of a user's lock, which it looks at every 200 ms.

  --for <time>             end after this long, such as 30s`,
  },
  doctor: {
    run: doctor,
    options: { ttl: text, budget: text },
    help: `Checks a Redis server for settings that lose or refuse locks, and suggests fixes.

  --ttl <time>             the ttlMs of the lock; default 10s
  --budget <time>          scan keys for at most this long; default 2s`,
  },
};

/** Options of every command. */
export const commonOptions: Options = {
  ...{ url: text, cluster: flag, sentinel: text, master: text, "tls-ca": text, config: text },
  ...{ "ioredis-prefix": text, prefix: text, json: flag, help: { ...flag, short: "h" } },
};

const commonHelp = `
  --prefix <text>          the keyPrefix of the lock; default lock:submit:. list and doctor take
                           several
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
  const typed = (of: string) => `${of}${commands[of]?.takesUser ? " <user>" : ""}`;
  if (name !== undefined) {
    const all = `${program} ${typed(name)} [options]\n\n${commands[name]?.help}${commonHelp}`;
    return all.split("\n");
  }
  const about = Object.entries(commands).map(
    ([of, { help }]) => `  ${typed(of).padEnd(15)}${help.split("\n")[0]}`,
  );
  return `${program} <command> [options]

${about.join("\n")}

Where Redis is: REDIS_URL or --url; see ${program} <command> --help.
Exit codes: 0 done, 1 doctor found a failure or free met another holder, 2 usage or no ioredis,
  3 no Redis within 2 s of connecting, 4 not permitted.`.split("\n");
}

/** Options that another command needs to look at the same lock. None of them is a secret. */
const repeated = ["cluster", "sentinel", "master", "ioredis-prefix", "config", "prefix"];

/** In milliseconds. */
const units: Readonly<Record<string, number>> = { ms: 1, s: 1e3, m: 6e4, min: 6e4, h: 3.6e6 };

/** The words behind the name of a command, checked against its options. */
export class Arguments {
  readonly name: string;
  /** `""` where the command is not about one user. */
  readonly user: string = "";
  readonly #values: Readonly<Record<string, (string | boolean)[] | undefined>>;

  /** @throws UsageError. */
  constructor([name = "", ...args]: readonly string[]) {
    const command = Object.hasOwn(commands, name) ? commands[name] : undefined;
    if (command === undefined) {
      const names = Object.keys(commands).join(", ");
      const got = name === "" ? "none" : `"${name}"`;
      throw new UsageError(
        `expected a command (${names}) as the first argument, got ${got}. Try: ${program} --help`,
      );
    }
    const { values, positionals } = parsed(name, args, { ...command.options, ...commonOptions });
    this.name = name;
    this.#values = values;
    const mayRepeat = command.takesUser ? undefined : "prefix";
    const twice = Object.keys(values).find(
      (each) => each !== mayRepeat && values[each]?.[1] !== undefined,
    );
    if (twice !== undefined) throw new UsageError(`--${twice} may be given only once`);
    if (this.has("help")) return;
    if (command.takesUser && positionals.length === 0) {
      throw new UsageError(`${name} needs a user id, as in: ${program} ${name} 42`);
    }
    if (command.takesUser) this.user = positionals.shift() ?? "";
    if (positionals.length === 0) return;
    throw new UsageError(
      `${name} takes ${command.takesUser ? "one user id" : "options only"}, got "${positionals[0]}" as well. A user id with spaces needs quotes`,
    );
  }

  has(option: string): boolean {
    return this.#values[option] !== undefined;
  }

  text(option: string): string | undefined {
    return this.texts(option)[0];
  }

  /** All values of an option that may be repeated. */
  texts(option: string): readonly string[] {
    return (this.#values[option] ?? []).filter((value) => typeof value === "string");
  }

  /** A whole number of at least 1. */
  count(option: string, preset: number): number {
    const typed = this.text(option) ?? String(preset);
    if (/^[1-9]\d{0,8}$/.test(typed)) return Number(typed);
    throw new UsageError(`--${option}: expected a whole number from 1 on, got "${typed}"`);
  }

  /** A time such as `500ms`, `30s`, `2min` or `1h`, in milliseconds. */
  duration(option: string, presetMs: number): number {
    const typed = this.text(option);
    if (typed === undefined) return presetMs;
    const [, digits, unit = ""] = /^(\d+(?:\.\d+)?)(ms|s|m|min|h)$/.exec(typed) ?? [];
    const ms = Number(digits) * (units[unit] ?? Number.NaN);
    if (Number.isFinite(ms)) return ms;
    throw new UsageError(`--${option}: expected a time such as 30s, 2min or 1h, got "${typed}"`);
  }

  /** Another command about the same user and the same lock, as a person types it. */
  suggest(command: string): string {
    const options = repeated.flatMap((option) =>
      (this.#values[option] ?? []).map((value) =>
        typeof value === "string" ? `--${option} ${quoted(value)}` : `--${option}`,
      ),
    );
    const user = `${this.user.startsWith("-") ? "-- " : ""}${quoted(this.user)}`;
    return [program, command, ...options, user].join(" ");
  }
}

function parsed(name: string, args: string[], options: Options) {
  try {
    const { values, positionals } = parseArgs({ args, options, allowPositionals: true });
    return { values: values as Record<string, (string | boolean)[]>, positionals };
  } catch (error) {
    const [message = ""] = (error as Error).message.split(". To specify");
    throw new UsageError(`${message}. Try: ${program} ${name} --help`);
  }
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
    const [first = ""] = argv;
    const args = ["--help", "-h", "help"].includes(first) ? undefined : new Arguments(argv);
    if (args === undefined || args.has("help")) {
      terminal.print(helpOf(args?.name));
      return exitCode.done;
    }
    const { name, user } = args;
    const { run, takesUser } = commands[name] as Command;
    // Checked before there is a connection: an invalid user id does not concern Redis.
    if (takesUser) submitKey("", user);
    if (user !== user.trim()) {
      terminal.warn([`The user id "${visible(user)}" has blanks at its ends. Were they pasted?`]);
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
