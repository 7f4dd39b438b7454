import type { Arguments } from "./arguments.ts";
import type { Connection } from "./connect.ts";
import type { Terminal } from "./terminal.ts";

/** What a command is given. */
export interface Context {
  readonly args: Arguments;
  readonly terminal: Terminal;
  /** Connects. Called once everything that was typed has been checked. */
  open(): Promise<Connection>;
}
