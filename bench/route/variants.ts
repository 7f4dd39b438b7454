import { scriptCalls } from "../libraries.ts";

/** What stands before the order route. */
export type Variant =
  | "bare"
  | "ping"
  | "hand-written"
  | "scripts"
  | "guard"
  | "protect"
  | "once"
  | "measured"
  | "traced";

/** A route as it is served by a process of its own. */
export interface Route {
  readonly framework: "Express" | "Koa";
  readonly variant: Variant;
  /** The commands that it sends itself; Redis counts those within a script, too. */
  readonly sends: readonly string[];
}

const sends: Record<Variant, readonly string[]> = {
  bare: [],
  ping: ["ping"],
  "hand-written": ["set", "evalsha"],
  scripts: scriptCalls,
  guard: scriptCalls,
  protect: scriptCalls,
  once: scriptCalls,
  measured: scriptCalls,
  traced: scriptCalls,
};

function routesOf(framework: Route["framework"], variants: readonly Variant[]): Route[] {
  return variants.map((variant) => ({ framework, variant, sends: sends[variant] }));
}

export const routes: readonly Route[] = [
  ...routesOf("Express", ["bare", "ping", "hand-written", "scripts", "guard", "protect"]),
  ...routesOf("Koa", ["bare", "ping", "hand-written", "scripts", "guard"]),
];

export const variantNames: Record<Variant, string> = {
  bare: "bare",
  ping: "one PING",
  "hand-written": "hand-written lock",
  scripts: "its scripts alone",
  guard: "submit-lock",
  protect: "submit-lock, protect",
  once: "submit-lock, protect, idempotency",
  measured: "submit-lock, protect, metrics",
  traced: "submit-lock, protect, metrics and spans",
};

export function nameOf({ framework, variant }: Route): string {
  return `${framework}, ${variantNames[variant]}`;
}
