import { describe, expect, test } from "vitest";
import { judged } from "../lab/nets/hunt.ts";

/** A machine that keeps the process from running for so long, whatever it plays. */
const late = (worstMs: number) => () => ({ worstMs, stop() {} });

describe("a net's program that is red", () => {
  test("on a punctual machine is red at once", async () => {
    const busy: string[] = [];
    const paces: number[] = [];
    const red = async (pace: number) => {
      paces.push(pace);
      return "two orders";
    };
    expect(await judged(red, busy, late(10))).toBe("two orders");
    expect([paces, busy]).toEqual([[1], []]);
  });

  test("on a late machine is played with longer times, and is red where these are long enough", async () => {
    const busy: string[] = [];
    const paces: number[] = [];
    const red = async (pace: number) => {
      paces.push(pace);
      throw new Error("two orders");
    };
    expect(await judged(red, busy, late(150))).toContain("Error: two orders");
    expect([paces, busy]).toEqual([[1, 4], []]);
  });

  test("only for want of time is green with longer times", async () => {
    const busy: string[] = [];
    const slow = async (pace: number) => (pace < 4 ? "no answer in time" : undefined);
    expect(await judged(slow, busy, late(1_000))).toBe(undefined);
    expect(busy).toEqual([]);
  });

  test("on a machine that is too busy for every bound is named, and not red", async () => {
    const busy: string[] = [];
    expect(await judged(async () => "no answer in time", busy, late(5_000))).toBe(undefined);
    expect(busy).toEqual(["no answer in time\n  kept from running for 5000 ms"]);
  });
});
