import { endedLeases, guard } from "../../guard.js";
import { pay } from "../../work.js";

export const POST = guard.protect(pay);

export const dynamic = "force-dynamic";
export const GET = () => Response.json({ endedLeases: endedLeases() });
