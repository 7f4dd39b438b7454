import { expect, test } from "vitest";
import { free } from "../../../src/cli/free.ts";
import {
  InvalidOptionError,
  LockMisconfiguredError,
  LockUnavailableError,
} from "../../../src/index.ts";
import { linesOf, lockOf } from "./fakes.ts";

const refused = new LockMisconfiguredError("no", { cause: new Error("NOPERM") });
const down = new LockUnavailableError("no", { cause: new Error("READONLY") });

test.each([
  ["refused for good", refused, "Nothing was changed."],
  ["refused now", down, "Nothing was changed."],
  ["wrong", new InvalidOptionError("by"), "Nothing was changed."],
  [
    "refused after a request that may have been executed",
    new LockUnavailableError("no", { cause: down }),
    "Whether the user was freed is not known. Look again: ",
  ],
  ["lost", new Error("lost"), "Whether the user was freed is not known. Look again: "],
])("a free that is %s says whether it changed anything", async (_what, error, said) => {
  const found = { state: "cooldown", id: "0f8fad5b", expiresInMs: 1_000 } as const;
  const [first] = lockOf(found).locks;
  const lock = { ...first.lock, free: () => Promise.reject(error) };
  const argv = ["free", "42", "--id", "0f8fad5b", "--reason", "x"];
  const run = linesOf(free, argv, { locks: [{ ...first, lock }] });
  await expect(run).rejects.toThrow(said);
});
