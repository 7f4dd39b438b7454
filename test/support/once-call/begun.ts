import type { SubmitLock } from "../../../src/index.ts";

/** The submission of {@link begun}. */
export const submission = { id: "cart 7" };

/** Calls once with work that the test ends; resolves when it runs. */
export async function begun(lock: SubmitLock, user: string) {
  let end!: (value: number | Promise<never>) => void;
  let result!: ReturnType<typeof lock.once<number>>;
  await new Promise<void>((running) => {
    result = lock.once(user, submission, () => {
      running();
      return new Promise<number>((resolve) => {
        end = resolve;
      });
    });
  });
  return { end, result };
}
