import { leaseOf } from "submit-lock/fetch";
import { endedLeases, guard } from "../../guard.js";

export const POST = guard.protect(async (request) => {
  const { signal } = leaseOf(request);
  const paid = await fetch(process.env.PAYMENTS_URL, { method: "POST", signal });
  return Response.json(await paid.json(), { status: 201 });
});

export const dynamic = "force-dynamic";
export const GET = () => Response.json({ endedLeases: endedLeases() });
