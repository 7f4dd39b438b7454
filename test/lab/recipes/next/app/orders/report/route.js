import { guard } from "../../../guard.js";

/** Reports on the order until the client has left. */
export const POST = guard.protect(async () => {
  let timer;
  const report = new ReadableStream({
    start(controller) {
      const encoder = new TextEncoder();
      timer = setInterval(() => controller.enqueue(encoder.encode("at work\n")), 20);
    },
    cancel() {
      clearInterval(timer);
    },
  });
  return new Response(report, { status: 201 });
});
