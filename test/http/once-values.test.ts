import { describe, expect, test } from "vitest";
import { until } from "../support/until.ts";
import { type Framework, newest } from "./frameworks.ts";
import { gate } from "./gate.ts";
import { codeOf, type OnceOptions, openOnce, orderKey, ownReplay } from "./once-shop.ts";

/** A shop whose first run has only told the id of its submission: nothing is kept. */
async function openKnown(options: Omit<OnceOptions, "handler">) {
  let id = "";
  let work: Promise<unknown> = Promise.resolve();
  const once = await openOnce({
    ...options,
    handler: async (turn, run) => {
      if (run === 1) turn.submission?.doNotStore();
      id = turn.submission?.id ?? "";
      await work;
      turn.answer(201, { run });
    },
  });
  await once.submit({ key: orderKey });
  await once.whenKept(0);
  return {
    once,
    submission: { id },
    lock: once.shop.lock,
    user: once.shop.user,
    worksUntil: (promise: Promise<unknown>) => {
      work = promise;
    },
  };
}

const never = () => expect.fail("it ran again");

describe.each(newest)("$name", (framework: Framework) => {
  test("a guard that meets a value of once answers 409, and neither runs nor repeats it", async () => {
    const { infos, onReplay } = ownReplay();
    const { lock, once, submission, user } = await openKnown({ framework, answers: { onReplay } });
    await lock.once(user, submission, () => ({ number: 7 }));
    const reply = await once.submit({ key: orderKey });
    expect([reply.status, codeOf(reply)]).toEqual([409, "idempotency_answer_unavailable"]);
    expect(reply.body).not.toContain("number");
    expect(infos).toEqual([]);
    expect(once.runs).toBe(1);
  });

  test("a guard that waits for once gets no answer of the value either", async () => {
    const guard = { idempotency: { waitMs: 10_000 } };
    const { lock, once, submission, user } = await openKnown({ framework, guard });
    const work = gate();
    const call = lock.once(user, submission, () => work.opened);
    await until(async () => (await once.shop.owner()) !== null, { what: "the lock to be held" });
    const click = once.begin({ key: orderKey });
    const asked = { submission };
    expect((await lock.lookUp(user, asked)).outcome).toBe("in-flight");
    work.open();
    await call;
    const reply = await click.reply;
    expect([reply.status, codeOf(reply)]).toEqual([409, "idempotency_answer_unavailable"]);
    expect(once.runs).toBe(1);
  });

  test("once that meets the answer of a guard is told that there is no value", async () => {
    const { lock, once, submission, user } = await openKnown({ framework });
    expect((await once.submit({ key: orderKey })).body).toBe('{"run":2}');
    await once.whenKept(1);
    const call = lock.once(user, submission, never);
    await expect(call).rejects.toMatchObject({ code: "SUBMIT_LOCK_ANSWER_UNAVAILABLE" });
  });

  test("once that meets a guard's order in flight waits, and does not run", async () => {
    const { lock, once, submission, user, worksUntil } = await openKnown({ framework });
    const work = gate();
    worksUntil(work.opened);
    const click = once.begin({ key: orderKey });
    await until(() => once.runs === 2, { what: "the order to run" });
    const call = lock.once(user, submission, never, { waitMs: 30_000 });
    const ended = call.catch((error: unknown) => error);
    work.open();
    expect(await ended).toMatchObject({ code: "SUBMIT_LOCK_ANSWER_UNAVAILABLE" });
    expect((await click.reply).status).toBe(201);
  });
});
