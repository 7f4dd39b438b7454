import { InvalidOptionError } from "../errors.ts";
import { resolveRetainMs } from "../lock/submission.ts";
import { checkMs, checkOptionNames, invalidOption } from "../validation.ts";
import type { StorePolicy } from "./store-policy.ts";
import { resolveStoredHeaders } from "./stored-headers.ts";

/** Nothing that tells this submission from others. */
export type NoId = undefined | null | "";

/** How a guard recognises a submission that comes again; `Source` is what its callbacks are given. */
export interface IdempotencyOptions<Source> {
  /** The `Idempotency-Key` header. `"required"`: 400 without it. @defaultValue "optional" */
  readonly key?: "optional" | "required" | "ignored" | undefined;
  /**
   * What is one submission, whatever the client sends: cart id and version, or a token rendered
   * into the form; 1 to 1 024 characters. Where it gives an id, the header does not count. No hash
   * of the body: what is ordered twice on purpose would be lost. A number, a boolean and unfit text
   * are a 400; an object goes to the error handler. @defaultValue none
   */
  readonly submissionId?: ((source: Source) => string | NoId | Promise<string | NoId>) | undefined;
  /**
   * What has to be equal on a retry: JSON, a string, bytes, or a promise of them; anything else goes
   * to the error handler. @defaultValue query, parsed body and files for ids of the header, none for `submissionId`
   */
  readonly fingerprint?: ((source: Source) => unknown) | undefined;
  /**
   * How long an answer is kept, in milliseconds: 1 000 to 604 800 000, and at least twice the
   * lock's `acquireTimeoutMs`. @defaultValue 86 400 000
   */
  readonly retainMs?: number | undefined;
  /** Which answers are kept. @defaultValue "success" */
  readonly store?: StorePolicy | undefined;
  /** Headers that are stored and replayed beside the package's own list. @defaultValue none */
  readonly replayHeaders?: readonly string[] | undefined;
  /**
   * The longest body that is kept, in bytes: 0 to 1 048 576. Of a longer one it is only known that
   * there was an answer, and the submission is not run again. @defaultValue 65 536
   */
  readonly maxBodyBytes?: number | undefined;
  /**
   * How long the answer of the same submission, still in flight, is waited for, in milliseconds:
   * 0 to 30 000. @defaultValue 0
   */
  readonly waitMs?: number | undefined;
  /** An absolute http(s) URL of your documentation: problem `type`, and `Link`. @defaultValue none */
  readonly docs?: string | undefined;
}

export interface ResolvedIdempotency<Source> {
  readonly key: "optional" | "required" | "ignored";
  readonly submissionId: IdempotencyOptions<Source>["submissionId"];
  readonly fingerprint: IdempotencyOptions<Source>["fingerprint"];
  readonly retainMs: number;
  readonly store: StorePolicy;
  /** In lower case. */
  readonly storedHeaders: ReadonlySet<string>;
  readonly maxBodyBytes: number;
  readonly waitMs: number;
  /** Safe within a header. */
  readonly docs: string | undefined;
}

const names = [
  "key",
  "submissionId",
  "fingerprint",
  "retainMs",
  "store",
  "replayHeaders",
  "maxBodyBytes",
  "waitMs",
  "docs",
] as const satisfies readonly (keyof IdempotencyOptions<never>)[];

const keys = ["optional", "required", "ignored"] as const;

/**
 * @param acquireTimeoutMs of the guard's lock; 0 where it is not known, and then the lock refuses a
 * `retainMs` that is too short for it.
 * @throws InvalidOptionError naming the option, what was expected and what came.
 */
export function resolveIdempotencyOptions<Source>(
  options: IdempotencyOptions<Source>,
  acquireTimeoutMs: number,
): ResolvedIdempotency<Source> {
  checkOptionNames("idempotency", options, names);
  const { key = "optional", store = "success", maxBodyBytes = 65_536, waitMs = 0 } = options;
  if (!keys.includes(key)) {
    throw invalidOption("idempotency.key", '"optional", "required" or "ignored"', key);
  }
  checkFunction("idempotency.submissionId", options.submissionId);
  checkFunction("idempotency.fingerprint", options.fingerprint);
  if (key === "ignored" && options.submissionId === undefined) {
    throw new InvalidOptionError(
      'idempotency: expected submissionId beside key: "ignored", got none, so nothing would identify a submission',
    );
  }
  if (store !== "success" && store !== "final" && typeof store !== "function") {
    throw invalidOption("idempotency.store", '"success", "final" or a function', store);
  }
  if (!Number.isInteger(maxBodyBytes) || maxBodyBytes < 0 || maxBodyBytes > 1_048_576) {
    const expected = "a whole number of bytes from 0 to 1048576";
    throw invalidOption("idempotency.maxBodyBytes", expected, maxBodyBytes);
  }
  return {
    key,
    submissionId: options.submissionId,
    fingerprint: options.fingerprint,
    retainMs: resolveRetainMs("idempotency.retainMs", options.retainMs, acquireTimeoutMs),
    store,
    storedHeaders: resolveStoredHeaders(options.replayHeaders),
    maxBodyBytes,
    waitMs: checkMs("idempotency.waitMs", waitMs, 0, 30_000),
    docs: resolveDocs(options.docs),
  };
}

function checkFunction(name: string, value: unknown): void {
  if (value !== undefined && typeof value !== "function") {
    throw invalidOption(name, "a function", value);
  }
}

/** In the form of `URL.href`, which has no character that could end a `Link` or a header line. */
function resolveDocs(docs: unknown): string | undefined {
  if (docs === undefined) return undefined;
  const url = typeof docs === "string" && URL.canParse(docs) ? new URL(docs) : undefined;
  if (url?.protocol === "https:" || url?.protocol === "http:") return url.href;
  throw invalidOption("idempotency.docs", "an absolute http or https URL", docs);
}
