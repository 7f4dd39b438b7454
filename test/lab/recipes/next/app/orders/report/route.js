import { guard } from "../../../guard.js";
import { report } from "../../../work.js";

export const POST = guard.protect(report);
