import { describe, expect, test } from "vitest";
import type { LockCommand, LockStore } from "../../../src/index.ts";
import { type Asking, asking } from "../asking.ts";
import { commandOf } from "../locks.ts";
import { onceOf } from "../submissions.ts";

/** What tells one lease of a key from the next. */
export function raisesFencingTokens(openStore: () => LockStore): void {
  const open = () => asking(openStore());

  describe("the fencing token", () => {
    const tokenOf = async (store: Asking, command: LockCommand): Promise<number> => {
      const reply = await store.acquire(command).reply;
      if (reply.kind !== "taken" && reply.kind !== "mine") throw new Error(reply.kind);
      expect(reply.fencingToken).toSatisfy(Number.isSafeInteger);
      return reply.fencingToken as number;
    };

    test.each([
      ["a lock alone", () => commandOf()],
      ["a submission", () => onceOf()],
    ])("of %s rises from lease to lease", async (_what, make) => {
      const [store, { key }] = [open(), make()];
      let last = 0;
      for (let i = 0; i < 20; i++) {
        const command = { ...make(), key };
        const token = await tokenOf(store, command);
        expect(token).toBeGreaterThan(last);
        last = token;
        await store.release(command).reply;
      }
    });

    test.each([
      ["a lock alone", commandOf],
      ["a submission", onceOf],
    ])(
      "of %s is the same however often the acquire is confirmed and extended",
      async (_what, make) => {
        const [store, mine] = [open(), make()];
        const token = await tokenOf(store, mine);
        for (let i = 0; i < 3; i++) {
          expect(await tokenOf(store, mine)).toBe(token);
          await store.extend(mine).reply;
        }
      },
    );
  });
}
