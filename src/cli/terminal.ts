import { hostname, userInfo } from "node:os";
import { createInterface } from "node:readline/promises";
import { styleText } from "node:util";

export type Tone = "bold" | "dim" | "green" | "red" | "yellow";

/** Colours a text, or leaves it as it is. */
export type Paint = (tone: Tone, text: string) => string;

export const plain: Paint = (_tone, text) => text;

type Output = NodeJS.WriteStream & { readonly isTTY?: boolean };

/** Where a command reads and writes: results on stdout, everything else on stderr. */
export interface Terminal {
  readonly env: NodeJS.ProcessEnv;
  /** Whether a person can be asked. */
  readonly canAsk: boolean;
  /** Whether lines of progress may be overwritten on stderr. */
  readonly showsProgress: boolean;
  readonly paint: Paint;
  /** Writes lines to stdout. */
  print(lines: readonly string[]): void;
  /** Writes lines to stderr. */
  warn(lines: readonly string[]): void;
  /** Replaces the line of progress; an empty text removes it. */
  progress(text: string): void;
  /** What the person typed, without spaces around it; `undefined` when there is no more input. */
  ask(question: string): Promise<string | undefined>;
}

/** Colours only on a terminal, and never with NO_COLOR (https://no-color.org). */
function paintFor(output: Output, env: NodeJS.ProcessEnv): Paint {
  const isPlain = output.isTTY !== true || (env["NO_COLOR"] ?? "") !== "" || env["TERM"] === "dumb";
  return isPlain ? plain : (tone, text) => styleText(tone, text, { validateStream: false });
}

export function processTerminal(): Terminal {
  const { env, stdin, stdout, stderr } = process;
  return {
    env,
    canAsk: stdin.isTTY === true && stderr.isTTY === true,
    showsProgress: stderr.isTTY === true && env["TERM"] !== "dumb",
    paint: paintFor(stdout, env),
    print: (lines) => void stdout.write(lines.map((line) => `${line}\n`).join("")),
    warn: (lines) => void stderr.write(lines.map((line) => `${line}\n`).join("")),
    progress: (text) => void stderr.write(`\r\u001b[K${text}`),
    ask: async (question) => {
      const reader = createInterface({ input: stdin, output: stderr });
      try {
        const ended = new Promise<undefined>((resolve) =>
          reader.once("close", () => resolve(undefined)),
        );
        return (await Promise.race([reader.question(question), ended]))?.trim();
      } finally {
        reader.close();
      }
    },
  };
}

/** Who is at the shell: `anna@ops-1`, also behind sudo. */
export function personOf(env: NodeJS.ProcessEnv): string {
  const names = [env["SUDO_USER"], env["USER"], env["LOGNAME"], env["USERNAME"]];
  return `${names.find((name) => name !== undefined && name !== "") ?? accountName()}@${hostname()}`;
}

function accountName(): string {
  try {
    return userInfo().username;
  } catch {
    // An account without an entry, as in a container.
    return "somebody";
  }
}
