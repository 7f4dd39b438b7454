import { inspect } from "node:util";
import { describe, expect, expectTypeOf, test } from "vitest";
import {
  AnsweredTwiceError,
  AnswerUnavailableError,
  type AnySubmitLockError,
  InvalidOptionError,
  InvalidUserIdError,
  InvalidValueError,
  isSubmitLockError,
  LockClosedError,
  LockContendedError,
  LockLostError,
  LockMisconfiguredError,
  LockUnavailableError,
  MemoryStore,
  NoFingerprintError,
  SubmissionMismatchError,
  SubmitLock,
  SubmitLockError,
  type SubmitLockErrorCode,
  TransactionRequiredError,
} from "../../src/index.ts";
import { inSources } from "./docs/sources.ts";

const cause = new Error("why");
const errors = [
  [new InvalidOptionError("x", { cause }), "InvalidOptionError", "SUBMIT_LOCK_INVALID_OPTION"],
  [new InvalidUserIdError("x", { cause }), "InvalidUserIdError", "SUBMIT_LOCK_INVALID_USER_ID"],
  [new LockUnavailableError("x", { cause }), "LockUnavailableError", "SUBMIT_LOCK_UNAVAILABLE"],
  [
    new LockMisconfiguredError("x", { cause }),
    "LockMisconfiguredError",
    "SUBMIT_LOCK_MISCONFIGURED",
  ],
  [new LockClosedError("x", { cause }), "LockClosedError", "SUBMIT_LOCK_CLOSED"],
  [new AnsweredTwiceError("x", { cause }), "AnsweredTwiceError", "SUBMIT_LOCK_ANSWERED_TWICE"],
  [new NoFingerprintError("x", { cause }), "NoFingerprintError", "SUBMIT_LOCK_NO_FINGERPRINT"],
  [new LockContendedError("x", 7), "LockContendedError", "SUBMIT_LOCK_CONTENDED"],
  [new SubmissionMismatchError("x", true), "SubmissionMismatchError", "SUBMIT_LOCK_MISMATCHED"],
  [
    new AnswerUnavailableError("x", { cause }),
    "AnswerUnavailableError",
    "SUBMIT_LOCK_ANSWER_UNAVAILABLE",
  ],
  [new InvalidValueError("x", { cause }), "InvalidValueError", "SUBMIT_LOCK_INVALID_VALUE"],
  [new LockLostError("x", "expired", "lock:submit:42"), "LockLostError", "SUBMIT_LOCK_LOST"],
  [
    new TransactionRequiredError("x", { cause }),
    "TransactionRequiredError",
    "SUBMIT_LOCK_TRANSACTION_REQUIRED",
  ],
] as const;

describe.each(errors)("%s", (error, name, code) => {
  test("has its name, its code and its message", () => {
    expect(error).toMatchObject({ name, code, message: "x" });
    expect(String(error)).toBe(`${name}: x`);
    expect(error).toBeInstanceOf(SubmitLockError);
    expect(error).toBeInstanceOf(Error);
  });

  test("carries a brand that another copy of the package recognises, and no logger prints", () => {
    expect(Reflect.get(error, Symbol.for("submit-lock.error"))).toBe(true);
    expect(isSubmitLockError(error)).toBe(true);
    expect(inspect(error)).not.toContain("submit-lock.error");
    expect(Object.keys(error)).not.toContain("submit-lock.error");
  });
});

test("every class is tried, and a switch over the code of any error knows each", () => {
  const tried = errors.map(([, , code]) => code).sort();
  expect(tried).toEqual(inSources(/(?<=readonly code = ")SUBMIT_LOCK_[A-Z_]+/g));
  expectTypeOf<AnySubmitLockError["code"]>().toEqualTypeOf<SubmitLockErrorCode>();
});

test.each(errors.map(([error]) => error).filter((error) => "status" in error))(
  "%s has a status that an error handler may show, and write",
  (error) => {
    const { status, statusCode, expose } = { ...error };
    expect([statusCode, expose]).toEqual([status, false]);
    // A common first line of handlers, in strict mode.
    const handled = error as { statusCode: number };
    handled.statusCode = handled.statusCode || 500;
    expect(handled.statusCode).toBe(status);
  },
);

test("an error keeps its cause", () => {
  expect(new LockUnavailableError("x", { cause }).cause).toBe(cause);
});

test.each([
  ["undefined", undefined],
  ["null", null],
  ["another error", new Error("x")],
  ["an error with the same code", Object.assign(new Error("x"), { code: "SUBMIT_LOCK_CLOSED" })],
  ["a string", "SUBMIT_LOCK_CLOSED"],
])("%s is no error of this package", (_name, value) => {
  expect(isSubmitLockError(value)).toBe(false);
});

test("an error of another copy of the package is recognised", () => {
  const foreign = Object.assign(new Error("x"), { [Symbol.for("submit-lock.error")]: true });
  expect(isSubmitLockError(foreign)).toBe(true);
});

describe("an error that a timer has made has the stack of its caller", () => {
  const store = new MemoryStore();
  store.play("silent");
  const lock = new SubmitLock({ store, acquireTimeoutMs: 100 });
  const calls: [string, () => Promise<unknown>][] = [
    ["withLock", () => lock.withLock("42", () => 7)],
    ["once", () => lock.once("42", { id: "cart 7" }, () => 7)],
    ["check", () => lock.check()],
    ["inspect", () => lock.inspect("42")],
    ["free", () => lock.free("42", { id: "356a192b", by: "anna", reason: "a test" })],
  ];

  test.each(calls)("%s", async (_name, call) => {
    async function placeOrder(): Promise<unknown> {
      return await call();
    }
    const error = (await placeOrder().catch((thrown) => thrown)) as Error;
    expect(error).toMatchObject({ code: "SUBMIT_LOCK_UNAVAILABLE" });
    expect(error.stack).toMatch(/^LockUnavailableError: .* placeOrder /s);
  });
});
