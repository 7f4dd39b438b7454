import type { SubmitLockOptions } from "../../../src/index.ts";

/** What a process is told when it starts. */
export interface CallerSettings {
  readonly port: number;
  /** Where it notes its runs, in lines that outlive it. */
  readonly log: string;
  readonly times: Partial<Omit<SubmitLockOptions, "store">>;
}

/** A call of `once` that a process must make. */
export interface Call {
  readonly call: number;
  readonly user: string;
  readonly submission: string;
  /** How long the work takes if this call runs it, and how long it then takes to return. */
  readonly workMs: number;
  readonly gapMs: number;
  readonly waitMs: number;
}

/** What a process says of itself and of its calls. */
export type FromCaller =
  | { readonly ready: true }
  | { readonly call: number; readonly run: string; readonly replayed: boolean }
  | { readonly call: number; readonly error: string };

/** A line of a log: a run has begun, it has had its effect, or its lease was lost. */
export interface Note {
  readonly what: "begun" | "ended" | "lost";
  readonly run: string;
  readonly user: string;
  readonly submission: string;
  /** By the clock that all processes share. */
  readonly at: number;
}
