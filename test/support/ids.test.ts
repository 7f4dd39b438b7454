import { expect, test } from "vitest";
import { freshUser } from "./ids.ts";

test("every fresh user is another one", () => {
  const users = Array.from({ length: 1_000 }, freshUser);
  expect(new Set(users).size).toBe(users.length);
});
