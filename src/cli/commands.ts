/** An option of a command, for the parser and for the help. */
export interface OptionSpec {
  readonly name: string;
  /** What stands for its value in the help; without it the option is a switch. */
  readonly value?: string;
  readonly isRepeatable?: boolean;
  readonly help: string;
}

/** As a command is typed: without the option, npx would fetch and run any package of this name. */
export const program = "npx --no-install submit-lock";

export type CommandName = "show" | "free" | "list" | "watch" | "doctor";

export interface CommandSpec {
  readonly name: CommandName;
  /** It is about one user, whose id is its argument. */
  readonly takesUser: boolean;
  readonly about: string;
  readonly options: readonly OptionSpec[];
}

const help: OptionSpec = { name: "help", help: "this text" };
const json: OptionSpec = { name: "json", help: "one JSON object on stdout, times in milliseconds" };

/** Where Redis is. */
const connection: readonly OptionSpec[] = [
  {
    name: "url",
    value: "<url>",
    help: "redis://user:password@host:port/db, or rediss:// for TLS; default $REDIS_URL",
  },
  { name: "cluster", help: "the address is a node of a Cluster" },
  {
    name: "sentinel",
    value: "<host:port,…>",
    help: "Sentinels; user, password and db come from the address",
  },
  { name: "master", value: "<name>", help: "the master that the Sentinels are asked for" },
  {
    name: "tls-ca",
    value: "<file>",
    help: "the certificate authority of a server that speaks TLS, as PEM",
  },
  { name: "ioredis-prefix", value: "<text>", help: "the keyPrefix of the shop's ioredis client" },
  {
    name: "config",
    value: "<file>",
    help: "a module that default-exports the shop's SubmitLock, instead of an address; list and doctor also need its client as the export `redis`",
  },
];

const prefix: OptionSpec = {
  name: "prefix",
  value: "<text>",
  help: "the keyPrefix of the lock; default lock:submit:",
};
const prefixes: OptionSpec = {
  ...prefix,
  isRepeatable: true,
  help: "the keyPrefix of a lock, may be given several times; default lock:submit:",
};

export const commands: readonly CommandSpec[] = [
  {
    name: "show",
    takesUser: true,
    about: "Says what is known of a user's lock, and what to do.",
    options: [...connection, prefix, json, help],
  },
  {
    name: "free",
    takesUser: true,
    about:
      "Takes a user's lock away. Its holder is told to stop, and nobody else can order for the user before.",
    options: [
      { name: "id", value: "<id>", help: "the id that show printed; asked for on a terminal" },
      { name: "reason", value: "<text>", help: "why, for the audit line; asked for on a terminal" },
      { name: "by", value: "<text>", help: "who frees; default $SUDO_USER or $USER, and the host" },
      { name: "dry-run", help: "only say what would happen" },
      {
        name: "now",
        help: "let the next order start at once, although the holder may still be at work: two orders and two charges are possible",
      },
      ...connection,
      prefix,
      json,
      help,
    ],
  },
  {
    name: "list",
    takesUser: false,
    about: "Lists the locks there are, the longest held first. Needs +scan.",
    options: [
      {
        name: "state",
        value: "<state,…>",
        help: "only these: working, silent, unknown, freed, cooldown, foreign",
      },
      {
        name: "older",
        value: "<time>",
        help: "only what has been held for so long, such as 30s; a foreign lock counts as old",
      },
      { name: "limit", value: "<count>", help: "so many lines at the most; default 100" },
      { name: "budget", value: "<time>", help: "the longest that keys are scanned; default 10s" },
      { name: "no-ids", help: "leave the user ids out" },
      ...connection,
      prefixes,
      json,
      help,
    ],
  },
  {
    name: "watch",
    takesUser: true,
    about:
      "Prints what happens to a user's lock until it is interrupted. Looks five times a second.",
    options: [
      { name: "for", value: "<time>", help: "end after so long, such as 30s" },
      ...connection,
      prefix,
      { ...json, help: "one JSON object a line" },
      help,
    ],
  },
  {
    name: "doctor",
    takesUser: false,
    about: "Says what of a Redis will lose locks or refuse them, and how to mend it.",
    options: [
      { name: "ttl", value: "<time>", help: "the ttlMs of the lock; default 10s" },
      { name: "budget", value: "<time>", help: "the longest that keys are scanned; default 2s" },
      ...connection,
      prefixes,
      json,
      help,
    ],
  },
];
