import { type HuntPlan, hunt } from "./hunt.ts";

/** Hunts in a process of its own, whose timers and clocks nobody else needs. */
const [plan = ""] = process.argv.slice(2);
const result = await hunt(JSON.parse(plan) as HuntPlan);
process.send?.(result);
