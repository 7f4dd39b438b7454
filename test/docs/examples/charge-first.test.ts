import { PGlite } from "@electric-sql/pglite";
import { identify } from "submit-lock/sql";
import { afterAll, beforeAll, expect, test } from "vitest";
import { charge, ddl } from "../../../examples/charge-first.ts";
import { freshUser } from "../../support/ids.ts";

const db = new PGlite();
beforeAll(() => db.exec(ddl));
afterAll(() => db.close());

/** A provider that keeps what it has answered under its key, a decline too. */
function openShop() {
  const user = freshUser();
  const kept = new Map<string, string | undefined>();
  const charges: string[] = [];
  const ask = (card: string) => async (key: string) => {
    if (!kept.has(key)) {
      const id = card === "good" ? `charge-${charges.length + 1}` : undefined;
      if (id !== undefined) charges.push(key);
      kept.set(key, id);
    }
    return kept.get(key);
  };
  /** A run of the submission. `isLost`: it dies when the provider has answered. */
  const run = async (card: string, { isLost = false, cart = "tea" } = {}) => {
    const submission = identify(user, { id: "order", fingerprint: cart });
    return await charge(db, submission, async (key) => {
      const id = await ask(card)(key);
      if (isLost) throw new Error("killed");
      return id;
    });
  };
  return { charges, run };
}

test("a run behind a crash gets the first one's charge, whatever card it has", async () => {
  const { charges, run } = openShop();
  await expect(run("good", { isLost: true })).rejects.toThrow("killed");
  expect(await run("other")).toBe("charge-1");
  expect(await run("good")).toBe("charge-1");
  expect(charges).toHaveLength(1);
});

test("another card behind a decline is charged, once", async () => {
  const { charges, run } = openShop();
  expect(await run("bad")).toBeUndefined();
  expect(await run("bad")).toBeUndefined();
  expect(await run("good", { cart: "coffee" })).toBe("charge-1");
  expect(await run("good", { cart: "coffee" })).toBe("charge-1");
  expect(charges).toHaveLength(1);
});

test("another card behind a decline that no run has learned of is charged at once", async () => {
  const { charges, run } = openShop();
  await expect(run("bad", { isLost: true })).rejects.toThrow("killed");
  expect(await run("good")).toBe("charge-1");
  expect(charges).toHaveLength(1);
});

test("other content is refused while the first may be charged", async () => {
  const { charges, run } = openShop();
  await expect(run("good", { isLost: true })).rejects.toThrow("killed");
  const other = run("good", { cart: "coffee" });
  await expect(other).rejects.toMatchObject({ code: "SUBMIT_LOCK_MISMATCHED", status: 422 });
  expect(charges).toHaveLength(1);
});
