import { parseArgs } from "node:util";
import { type CommandSpec, commands, program } from "./commands.ts";
import { UsageError } from "./failure.ts";
import { visible } from "./visible.ts";

type Value = string | boolean | readonly (string | boolean)[] | undefined;

/** What was typed after the name of a command, checked against the command's options. */
export class Arguments {
  readonly command: CommandSpec;
  readonly #user: string | undefined;
  readonly #values: Readonly<Record<string, Value>>;

  constructor(command: CommandSpec, user: string | undefined, values: Record<string, Value>) {
    this.command = command;
    this.#user = user;
    this.#values = values;
  }

  /** Of a command that is about one user. */
  get user(): string {
    return this.#user ?? "";
  }

  has(name: string): boolean {
    return this.#values[name] !== undefined;
  }

  text(name: string): string | undefined {
    return this.texts(name)[0];
  }

  /** Every value of an option that may be repeated. */
  texts(name: string): readonly string[] {
    const value = this.#values[name];
    return [value ?? []].flat().filter((each) => typeof each === "string");
  }

  /** A whole number of at least 1. */
  count(name: string, preset: number): number {
    const text = this.text(name);
    if (text === undefined) return preset;
    if (!/^[1-9]\d{0,8}$/.test(text)) {
      throw new UsageError(`--${name}: expected a whole number from 1 on, got "${text}"`);
    }
    return Number(text);
  }
}

/**
 * @param argv what follows the name of the program.
 * @throws UsageError.
 */
export function parseArguments(argv: readonly string[]): Arguments {
  const [name = "", ...rest] = argv;
  const command = commands.find((each) => each.name === name);
  if (command === undefined) {
    const names = commands.map((each) => each.name).join(", ");
    throw new UsageError(
      `expected a command (${names}) as the first argument, got ${name === "" ? "none" : `"${name}"`}. Try: ${program} --help`,
    );
  }
  const { values, positionals } = parsed(command, rest);
  const [user, ...others] = positionals;
  if (values["help"] === undefined) {
    if (command.takesUser && user === undefined) {
      throw new UsageError(`whose lock? Try: ${program} ${name} 42`);
    }
    const [surplus] = command.takesUser ? others : positionals;
    if (surplus !== undefined) {
      throw new UsageError(
        `${name} takes ${command.takesUser ? "one user id" : "options only"}, got "${surplus}" as well. A user id with spaces needs quotes`,
      );
    }
  }
  return new Arguments(command, user, values);
}

function parsed(
  command: CommandSpec,
  args: string[],
): { values: Record<string, Value>; positionals: string[] } {
  const options = Object.fromEntries(
    command.options.map(({ name, value, isRepeatable = false }) => [
      name,
      {
        type: value === undefined ? ("boolean" as const) : ("string" as const),
        multiple: isRepeatable,
        ...(name === "help" ? { short: "h" } : {}),
      },
    ]),
  );
  try {
    const { values, positionals, tokens } = parseArgs({
      args,
      options,
      allowPositionals: true,
      tokens: true,
    });
    const given = tokens.flatMap((token) => (token.kind === "option" ? [token.name] : []));
    const twice = given.find(
      (name, at) => given.indexOf(name) !== at && options[name]?.multiple !== true,
    );
    if (twice !== undefined) throw new UsageError(`--${twice} came twice`);
    return { values: { ...values }, positionals };
  } catch (error) {
    if (error instanceof UsageError) throw error;
    const [message = ""] = (error as Error).message.split(". To specify");
    throw new UsageError(`${message}. Try: ${program} ${command.name} --help`);
  }
}

/** A word as a shell takes it for one argument. */
export function quoted(word: string): string {
  return /^[\w@%+=:,./-]+$/.test(word) && !word.startsWith("-")
    ? word
    : `'${visible(word).replaceAll("'", "'\\''")}'`;
}

/** Options that a suggested command has to repeat to look at the same lock. None of them is a secret. */
const repeated = ["cluster", "sentinel", "master", "ioredis-prefix", "config", "prefix"];

/** Another command about the same user and the same lock. */
export function suggestion(name: string, args: Arguments): string {
  const options = repeated.flatMap((option) => {
    if (!args.has(option)) return [];
    const texts = args.texts(option);
    return texts.length === 0
      ? [`--${option}`]
      : texts.map((text) => `--${option} ${quoted(text)}`);
  });
  const user = args.command.takesUser
    ? [args.user.startsWith("-") ? `-- ${quoted(args.user)}` : quoted(args.user)]
    : [];
  return [program, name, ...options, ...user].join(" ");
}
