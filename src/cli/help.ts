import { type CommandSpec, commands, type OptionSpec } from "./commands.ts";

/** What `submit-lock --help` prints. */
export function overview(): string[] {
  return [
    "submit-lock <command> [options]",
    "",
    ...columns(
      commands.map((command) => [
        `${command.name}${command.takesUser ? " <user>" : ""}`,
        command.about,
      ]),
    ),
    "",
    "Where Redis is: REDIS_URL or --url; see submit-lock <command> --help.",
    "Exit codes: 0 done, 1 doctor found a failure or free met another holder, 2 usage or no ioredis,",
    "  3 no Redis within 2 s of connecting, 4 not permitted.",
  ];
}

/** What `submit-lock <command> --help` prints. */
export function helpOf(command: CommandSpec): string[] {
  return [
    `submit-lock ${command.name}${command.takesUser ? " <user>" : ""} [options]`,
    "",
    command.about,
    "",
    ...columns(command.options.map((option) => [typed(option), option.help])),
  ];
}

/** An option as it is typed. */
export function typed({ name, value }: OptionSpec): string {
  return `--${name}${value === undefined ? "" : ` ${value}`}`;
}

const width = 100;

/** Two columns; the second one is broken into lines. */
function columns(rows: readonly (readonly [string, string])[]): string[] {
  const left = Math.max(...rows.map(([name]) => name.length)) + 4;
  return rows.flatMap(([name, text]) =>
    wrapped(text, width - left).map(
      (line, at) => `${(at === 0 ? `  ${name}` : "").padEnd(left)}${line}`,
    ),
  );
}

/** The text in lines of at most so many characters, broken at spaces. */
export function wrapped(text: string, length: number): string[] {
  const lines: string[] = [];
  let line = "";
  for (const word of text.split(" ")) {
    if (line !== "" && line.length + 1 + word.length > length) {
      lines.push(line);
      line = word;
    } else line = line === "" ? word : `${line} ${word}`;
  }
  return [...lines, line];
}
