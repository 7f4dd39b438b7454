import { expect } from "vitest";

/** The error that refuses an option, and whose message has all of these parts. */
export function invalidOption(parts: readonly string[]): Error {
  const said = ["expected", "got", ...parts];
  return expect.objectContaining({
    name: "InvalidOptionError",
    code: "SUBMIT_LOCK_INVALID_OPTION",
    message: expect.toSatisfy((message) => said.every((part) => message.includes(part))),
  });
}
