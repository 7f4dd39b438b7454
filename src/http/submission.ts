import { parseIdempotencyKey } from "../idempotency-key.ts";
import { type Lease, UserLease } from "../lock/lease.ts";
import type { AnswerToStore } from "../lock/record.ts";
import { checkText, guardId, hash22, isText } from "../lock/submission.ts";
import { submitKey, type UserId } from "../lock/submit-key.ts";
import type { RefusalReason } from "../problem.ts";
import { warnOnce } from "../validation.ts";
import { fingerprintFor } from "./fingerprint.ts";
import type { ResolvedIdempotency } from "./options.ts";
import type { Adapter, Exchange } from "./port.ts";
import type { KeyMissing, RequestSubmission } from "./public.ts";

/** The record of a submission whose answer cannot be kept: repeats get 409, and never a 100. */
export const done: AnswerToStore = { status: 100 };

/** Told (rule 25) of a run that never began, since its client had left or was answered. */
export const neverBegun: AnswerToStore = { status: 101 };

export class IdentifiedSubmission implements RequestSubmission {
  readonly id: string;
  readonly fingerprint: string | undefined;
  readonly source: "key" | "derived";
  #isStored = true;
  #isPlaced = false;
  #lease: Lease | undefined;

  constructor(id: string, fingerprint: string | undefined, source: "key" | "derived") {
    this.id = id;
    this.fingerprint = fingerprint;
    this.source = source;
  }

  doNotStore(): void {
    this.#isStored = false;
  }

  placed(): void {
    this.#isPlaced = true;
    const lease = this.#lease;
    if (lease === undefined) return;
    UserLease.placed(lease);
    // Where the lease is lost already, a repeat could run beside this request.
    if (lease.remainingMs() === 0) UserLease.record(lease, done);
  }

  // Static, so that `req.submission` does not show these methods to handlers.
  static acquired(submission: IdentifiedSubmission, lease: Lease): void {
    submission.#lease = lease;
  }

  static isStored(submission: IdentifiedSubmission): boolean {
    return submission.#isStored;
  }

  static isPlaced(submission: IdentifiedSubmission): boolean {
    return submission.#isPlaced;
  }
}

/**
 * Finds the submission's id and fingerprint before the handlers run: they may change the body.
 * @param scope a text that belongs to the user alone: the key of the user's lock.
 * @param userId the user for whom {@link guardId} marks the id.
 * @throws NoFingerprintError, InvalidOptionError (as rejections), and errors of the callbacks.
 */
export async function identifyRequest<Source>(
  options: ResolvedIdempotency<Source>,
  { checkParsed, path, payload }: Pick<Adapter<Source, never>, "checkParsed" | "path" | "payload">,
  source: Source,
  exchange: Exchange,
  scope: string,
  userId: UserId,
): Promise<IdentifiedSubmission | RefusalReason<KeyMissing> | undefined> {
  const { except } = options;
  const chosen = options.fingerprint ?? (except && (() => payload(source, except)));
  const { method } = exchange;
  // GET and HEAD have no submission: they take the plain lock, and no answer is kept.
  if (method === "GET" || method === "HEAD") return undefined;
  // Without the function, do not await: each turn costs time.
  if (options.submissionId !== undefined) {
    const derived = await options.submissionId(source);
    if (derived !== undefined && derived !== null && derived !== "") {
      // The client may have sent a number, a boolean or a malformed text, so it gets 400. For any
      // other value, `checkText` throws.
      const isPrimitive = ["string", "number", "boolean"].includes(typeof derived);
      if (isPrimitive && !isText(derived)) {
        const why = "The submission id must be a well-formed string of up to 1024 characters.";
        return { reason: "id-invalid", why };
      }
      const id = derivedId(userId, scope, checkText("idempotency.submissionId", derived));
      const given = await chosen?.(source);
      const fingerprint = given === undefined ? undefined : fingerprintFor(id, given);
      return new IdentifiedSubmission(id, fingerprint, "derived");
    }
  }
  const lines = options.key === "ignored" ? [] : exchange.headerLines("idempotency-key");
  const header = parseIdempotencyKey(lines);
  if (header.kind === "invalid") return { reason: "key-invalid", why: header.why };
  if (header.kind === "missing") {
    // Reject an unparsed body: `submissionId` cannot have found an id in it.
    if (options.submissionId !== undefined) await checkParsed?.(source);
    if (options.key !== "optional") return { reason: "key-missing" };
    if (options.submissionId !== undefined) {
      warnOnce(
        "SUBMIT_LOCK_NO_SUBMISSION_ID",
        'idempotency.submissionId returned nothing, so a request has the lock alone, and a later click is a second order. Return the id that the page sent, or refuse such requests with idempotency.key: "required"',
      );
    }
    return undefined;
  }
  const id = keyId(userId, scope, `${method} ${path(source)}`, header.key);
  const fingerprint = fingerprintFor(id, await (chosen ?? payload)(source));
  return new IdentifiedSubmission(id, fingerprint, "key");
}

/** The id of a submission with an `Idempotency-Key`. @param route such as `POST /orders`. */
export function keyId(userId: UserId, scope: string, route: string, key: string): string {
  return guardId(submitKey("", userId), hash22(`key\n${scope}\n${route}\n${key}`));
}

export function derivedId(userId: UserId, scope: string, text: string): string {
  return guardId(submitKey("", userId), hash22(`derived\n${scope}\n${text}`));
}
