import { expect, test } from "vitest";
import { until } from "../../support/until.ts";

test("until resolves with the first truthy answer", async () => {
  let calls = 0;
  expect(await until(() => (++calls === 3 ? "there" : undefined), { what: "three" })).toBe("there");
  expect(calls).toBe(3);
});

test("until names what it waited for and the last answer", async () => {
  await expect(until(() => 0, { what: "a miracle", boundMs: 20 })).rejects.toThrow(
    "Waited 20 ms for a miracle; the last answer was 0.",
  );
});

test("an error of the condition ends the waiting", async () => {
  const broken = (): boolean => {
    throw new Error("broken");
  };
  await expect(until(broken, { what: "nothing" })).rejects.toThrow("broken");
});
