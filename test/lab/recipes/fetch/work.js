import process from "node:process";
import { leaseOf } from "submit-lock/fetch";

/** Charges, and answers with the order. */
export async function pay(request) {
  const { signal } = leaseOf(request);
  const paid = await fetch(process.env.PAYMENTS_URL, { method: "POST", signal });
  return Response.json(await paid.json(), { status: 201 });
}

/** Reports on the order until the client has left. */
export function report() {
  let timer;
  const lines = new ReadableStream({
    start(controller) {
      const encoder = new TextEncoder();
      timer = setInterval(() => controller.enqueue(encoder.encode("at work\n")), 20);
    },
    cancel() {
      clearInterval(timer);
    },
  });
  return new Response(lines, { status: 201 });
}
