import { mkdtempSync, rmSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { expect, test } from "vitest";
import { now } from "../shop/protocol.ts";
import { checked, LedgerFile, ofProcess } from "./ledger.ts";

// `npm run lab -- capacity` plays the orders.
test("the ledger tells a second run that a fault explains from one that nothing does", async () => {
  const folder = mkdtempSync(join(tmpdir(), "submit-lock-ledger-"));
  try {
    const files = ["0", "1"].map((name) => join(folder, name));
    const [one, other] = files.map((file) => new LedgerFile(file)) as [LedgerFile, LedgerFile];
    const play = async (order: number, ...entries: [LedgerFile, "ran" | "shown", number][]) => {
      for (const [file, kind, placed] of entries) await file.append(kind, order, placed);
    };
    await play(0, [one, "ran", 1], [one, "shown", 1], [other, "shown", 1]);
    await play(1, [one, "ran", 2], [other, "ran", ofProcess], [other, "shown", ofProcess]);
    await play(2, [one, "ran", 3], [one, "shown", 3]);
    const killedAt = now();
    await play(2, [other, "ran", ofProcess + 1], [other, "shown", ofProcess + 1]);
    await play(3, [one, "ran", 5], [other, "shown", 6]);
    await play(4, [one, "ran", 7]);
    const faults = { killed: new Set([0]), restarts: [], retainMs: 60_000 };
    const found = checked(files, 6, faults);
    expect(found).toMatchObject({ orders: 6, neverRan: 1, neverShown: 2, shownAnother: 1 });
    expect(found).toMatchObject({ behindKilledProcess: 1, ranAgain: 1, lostByRedis: 0 });
    const [restarted, late] = [{ restarts: [killedAt] }, { retainMs: 0 }];
    expect(checked(files, 6, { ...faults, ...restarted })).toMatchObject({ lostByRedis: 1 });
    expect(checked(files, 6, { ...faults, ...late })).toMatchObject({ askedTooLate: 1 });
  } finally {
    rmSync(folder, { recursive: true, force: true });
  }
});
