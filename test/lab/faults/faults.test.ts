import { afterAll, beforeAll, describe, expect, inject, test } from "vitest";
import { sharedRedisPort } from "../../support/redis-server.ts";
import { isSound, misses } from "./bounds.ts";
import { type CellResult, runCell } from "./cell.ts";
import { labClient } from "./clients.ts";
import { allFaults, faultNamed, libraryFor } from "./faults.ts";
import { setAndDel } from "./libraries.ts";
import { recordUncaught, runCells } from "./run-cells.ts";

// `npm run lab -- faults` has the other fifteen clients.
const clients = [
  "node-redis 6, defaults",
  "ioredis 5, commandTimeout 200",
  "ioredis 6, no resend, no queue",
].map(labClient);
const servers = () => ({ binary: inject("redisServerBinary"), sharedPort: sharedRedisPort() });

describe("P1 to P6 and P9: submit-lock under every fault", () => {
  let uncaught: ReturnType<typeof recordUncaught>;
  let results: CellResult[];
  beforeAll(async () => {
    uncaught = recordUncaught();
    const cells = allFaults.flatMap((fault) =>
      clients.map((client) => ({ library: libraryFor(fault), client, fault })),
    );
    const run = await runCells(servers(), cells, { atOnce: 12, isSound });
    console.log(
      `${run.again} of ${cells.length} cells were measured again, on a machine that was late`,
    );
    expect(run.failures).toEqual([]);
    results = run.results;
  }, 600_000);
  afterAll(() => uncaught.stop());

  describe.each(clients)("$name", (client) => {
    test.each(allFaults)("$name ($what) shows what it must", (fault) => {
      const cell = results.find(
        (result) => result.fault === fault.name && result.client === client.name,
      );
      expect(cell && misses(fault, cell), JSON.stringify(cell)).toEqual([]);
    });
  });

  test("no rejection goes unhandled", () => {
    expect(uncaught.take()).toEqual([]);
  });
});

/** As if the machine had not been late, so that the cell is judged in any case. */
const onTime = (cell: CellResult): CellResult => ({ ...cell, labLateMs: 0 });

describe("the lab itself", () => {
  test("sees the orphan that a plain SET NX EX leaves when its reply is lost", async () => {
    const fault = faultNamed("F1b");
    const client = labClient("ioredis 5, commandTimeout 200");
    const cell = await runCell(servers(), { library: setAndDel, client, fault });
    expect(cell).toMatchObject({ struck: true, outcome: "error", overlaps: 0 });
    expect(cell.orphanMs).toBeGreaterThan(4_000);
    expect(cell.freedAfterMs).toBeGreaterThan(4_000);
    expect(misses(fault, onTime(cell))).not.toEqual([]);
  });

  test("sees the gap where there is neither a lock nor a record", async () => {
    const fault = faultNamed("complete: reply lost");
    const client = labClient("ioredis 6, keyPrefix");
    const once = libraryFor(fault);
    // The record of another submission is not the one that is looked for.
    const forgetful = { ...once, recordKeyOf: (user: string) => `no record of ${user}` };
    const cell = await runCell(servers(), { library: forgetful, client, fault });
    expect(cell.once?.gaps).toBeGreaterThan(0);
    expect(cell.once).toMatchObject({ secondRuns: 0, isRecordedAtEnd: false });
    expect(misses(fault, onTime(cell))).not.toEqual([]);
  });

  test("sees two holders at once when a plain DEL is sent again after a reset", async () => {
    const fault = faultNamed("release: reply lost");
    const cell = await runCell(servers(), {
      library: setAndDel,
      client: labClient("ioredis 6, defaults"),
      fault,
    });
    expect(cell.struck).toBe(true);
    expect(cell.overlaps).toBeGreaterThan(0);
  });
});
