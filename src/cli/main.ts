import { submitKey } from "../lock/submit-key.ts";
import { parseArguments } from "./arguments.ts";
import type { CommandName } from "./commands.ts";
import { type Connection, connect } from "./connect.ts";
import type { Context } from "./context.ts";
import { doctor } from "./doctor.ts";
import { CliError, exitCode, NoAnswerError, toCliError } from "./failure.ts";
import { free, UnknownOutcome } from "./free.ts";
import { helpOf, overview } from "./help.ts";
import { list } from "./list.ts";
import { show } from "./show.ts";
import type { Terminal } from "./terminal.ts";
import { hasOuterBlanks, visible } from "./visible.ts";
import { watch } from "./watch.ts";

const run: Readonly<Record<CommandName, (context: Context) => Promise<number>>> = {
  show,
  free,
  list,
  watch,
  doctor,
};

/**
 * Runs one command.
 *
 * @param argv what follows the name of the program.
 * @returns the exit code.
 */
export async function main(argv: readonly string[], terminal: Terminal): Promise<number> {
  let connection: Connection | undefined;
  try {
    if (["--help", "-h", "help"].includes(argv[0] ?? "")) {
      terminal.print(overview());
      return exitCode.done;
    }
    const args = parseArguments(argv);
    if (args.has("help")) {
      terminal.print(helpOf(args.command));
      return exitCode.done;
    }
    // Before there is a connection: a user id that is none is no matter of Redis.
    if (args.command.takesUser) submitKey("", args.user);
    if (hasOuterBlanks(args.user)) {
      terminal.warn([
        `The user id "${visible(args.user)}" has blanks at its ends. Were they pasted?`,
      ]);
    }
    const open = async () => {
      connection = await connect(args, terminal.env);
      return connection;
    };
    return await run[args.command.name]({ args, terminal, open });
  } catch (error) {
    const failure = failureOf(error, connection?.address ?? "Redis");
    // It may repeat what was typed.
    terminal.warn([`submit-lock: ${visible(failure.message)}`]);
    return failure.exitCode;
  }
}

function failureOf(error: unknown, address: string): CliError {
  if (!(error instanceof UnknownOutcome)) return toCliError(error, address);
  const failure = toCliError(error.cause, address);
  const outcome =
    failure instanceof NoAnswerError
      ? `Whether the user was freed is not known: ${error.showCommand}`
      : "Nothing was changed.";
  return new CliError(`${failure.message} ${outcome}`, failure.exitCode);
}
