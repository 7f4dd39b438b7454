import { realpathSync } from "node:fs";
import { createRequire } from "node:module";
import { isSubmitLockError } from "../errors.ts";
import { submitKey } from "../lock/submit-key.ts";
import { textOfThrown } from "../validation.ts";
import { answers, forget } from "./answers.ts";
import { connect } from "./connect.ts";
import { Arguments, type CliTarget, type Context, helpOf } from "./context.ts";
import { doctor } from "./doctor.ts";
import { CliError, exitCode, toCliError } from "./failure.ts";
import { free } from "./free.ts";
import { list } from "./list.ts";
import { show, watch } from "./show.ts";
import { type Terminal, visible } from "./terminal.ts";

type CliCommand = (context: Context) => Promise<number | undefined>;

export const commands: Readonly<Record<string, CliCommand>> = {
  ...{ show, free, list, watch, answers, forget, doctor },
};

export async function main(argv: readonly string[], terminal: Terminal): Promise<number> {
  let connection: CliTarget | undefined;
  try {
    if (/^(--version|-v|version)$/i.test(argv[0] ?? "")) {
      // Find the own package without `import.meta`, because all sources also compile to CommonJS.
      const own = createRequire(realpathSync(process.argv[1] ?? "."));
      terminal.print([own("submit-lock/package.json").version]);
      return exitCode.done;
    }
    const [first = "", ...rest] = argv;
    const isHelp = /^(--help|-h|help)$/.test(first);
    const given = isHelp ? [...rest, "--help"] : argv;
    const args = isHelp && rest.length === 0 ? undefined : new Arguments(given);
    if (args === undefined || args.has("help")) {
      terminal.print(helpOf(args?.name));
      return exitCode.done;
    }
    const { name, user } = args;
    // Check this before connecting: an invalid user id does not concern Redis.
    if (args.takesUser) submitKey("", user);
    if (user !== user.trim()) {
      terminal.warn([`The user id "${visible(user)}" has blanks at its ends. Were they pasted?`]);
    }
    const open = async () => {
      connection = await connect(args, terminal.env);
      if (args.takesUser) checkKeyOf(connection, user);
      if (connection.isReplica && name !== "doctor") {
        const { address } = connection;
        terminal.warn([`${address} is a replica, and what it shows may be old. Ask its master.`]);
      }
      return connection;
    };
    return (await commands[name]?.({ args, terminal, open })) ?? exitCode.done;
  } catch (error) {
    const failure = toCliError(error, connection?.address ?? "Redis");
    // Escape the message, because it may repeat an argument with control characters.
    terminal.warn([`submit-lock: ${visible(failure.message)}`]);
    return failure.exitCode;
  }
}

/** An error of the shop's `keyOf` must not look like a failure of Redis. */
function checkKeyOf({ locks: [lock] }: CliTarget, user: string): void {
  try {
    lock.keyFor(user);
  } catch (error) {
    if (isSubmitLockError(error)) throw error;
    throw new CliError(`keyOf of the lock refuses this user id (${textOfThrown(error)})`);
  }
}
