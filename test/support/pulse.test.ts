import { expect, test } from "vitest";
import { Starvation } from "./pulse.ts";

test("code that blocks its own event loop does not count as a busy machine", () => {
  const starvation = new Starvation();
  const from = performance.now();
  const { user } = process.cpuUsage();
  while (process.cpuUsage().user - user < 300_000);
  const { worstMs } = starvation;
  starvation.stop();
  expect(worstMs).toBeLessThan(performance.now() - from - 250);
});

test("a process that waited longer than its timer says was kept from running", async () => {
  const starvation = new Starvation();
  // Without using the processor, as while other processes have it.
  Atomics.wait(new Int32Array(new SharedArrayBuffer(4)), 0, 0, 400);
  expect(starvation.worstMs).toBeGreaterThan(200);
  starvation.stop();
});
