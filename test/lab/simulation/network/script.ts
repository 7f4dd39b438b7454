import fc from "fast-check";

/** One thing that happens to a client, or to the network and the server behind it. */
export type Step =
  /** A script call about a key of its own; what is held waits for `release`, with all behind it. */
  | { readonly ask: Who; readonly held?: "request" | "reply"; readonly fails?: true }
  | { readonly connect: Who }
  /** `asks`: a call follows in the same turn. */
  | { readonly disconnect: Who; readonly asks?: true }
  /** The second connection, as the store opens it. */
  | { readonly duplicate: true }
  /** The server stands still: connections are accepted, and nothing is answered until `release`. */
  | { readonly silence: true }
  | { readonly release: true }
  /** Every connection is reset; `lands` says whether what is on its way to the server still arrives. */
  | { readonly reset: { readonly lands: boolean } }
  /** So many attempts to connect are refused from now on, as long as there is one client only. */
  | { readonly refuse: number };

/** The user's own client, and the second one of the store. */
export type Who = "first" | "second";

export interface ScriptOptions {
  readonly autoResendUnfulfilledCommands: boolean;
  readonly enableOfflineQueue: boolean;
  readonly maxRetriesPerRequest: number;
  readonly commandTimeout: number | undefined;
  readonly lazyConnect: boolean;
  readonly retryMs: number;
}

export interface Script {
  readonly options: ScriptOptions;
  readonly steps: readonly Step[];
}

const retryMs = 10;
/** Longer than any script. */
export const neverMs = 2 ** 31 - 1;
/** How long a client that was told to disconnect waits for the other end. */
export const disconnectTimeoutMs = 60;
/** Long enough for a command that nobody holds on a machine that is busy. */
export const commandTimeoutMs = 600;

const who = fc.constantFrom<Who>("first", "first", "first", "second");

const step: fc.Arbitrary<Step> = fc.oneof(
  {
    weight: 8,
    arbitrary: fc.record(
      { ask: who, held: fc.constantFrom("request", "reply"), fails: fc.constant(true) },
      { requiredKeys: ["ask"] },
    ),
  },
  { weight: 3, arbitrary: fc.record({ connect: who }) },
  {
    weight: 2,
    arbitrary: fc.record(
      { disconnect: who, asks: fc.constant(true) },
      { requiredKeys: ["disconnect"] },
    ),
  },
  { weight: 2, arbitrary: fc.constant<Step>({ duplicate: true }) },
  { weight: 2, arbitrary: fc.constant<Step>({ silence: true }) },
  { weight: 4, arbitrary: fc.constant<Step>({ release: true }) },
  { weight: 4, arbitrary: fc.record({ reset: fc.record({ lands: fc.boolean() }) }) },
  { weight: 2, arbitrary: fc.record({ refuse: fc.integer({ min: 1, max: 3 }) }) },
);

export const usual: ScriptOptions = {
  autoResendUnfulfilledCommands: true,
  enableOfflineQueue: true,
  maxRetriesPerRequest: 20,
  commandTimeout: undefined,
  lazyConnect: false,
  retryMs,
};

const options: fc.Arbitrary<ScriptOptions> = fc.record({
  autoResendUnfulfilledCommands: fc.constantFrom(true, true, false),
  enableOfflineQueue: fc.constantFrom(true, true, false),
  maxRetriesPerRequest: fc.constantFrom(20, 20, 1, 0),
  commandTimeout: fc.constant(undefined),
  lazyConnect: fc.constantFrom(false, false, false, true),
  retryMs: fc.constant(retryMs),
});

/**
 * A time-out also ends a handshake, again and again for as long as the server is silent: with one,
 * a client comes back only when it is told to.
 */
const impatient: fc.Arbitrary<ScriptOptions> = fc.record({
  autoResendUnfulfilledCommands: fc.boolean(),
  enableOfflineQueue: fc.boolean(),
  maxRetriesPerRequest: fc.constantFrom(20, 0),
  commandTimeout: fc.constant(commandTimeoutMs),
  lazyConnect: fc.boolean(),
  retryMs: fc.constant(neverMs),
});

export const scripts: fc.Arbitrary<Script> = fc.record({
  options: fc.oneof({ weight: 3, arbitrary: options }, { weight: 1, arbitrary: impatient }),
  steps: fc.array(step, { minLength: 1, maxLength: 10 }),
});
