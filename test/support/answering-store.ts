import {
  type AcquireReply,
  type AcquireRequest,
  type CompleteReply,
  type CompleteRequest,
  type LockRequest,
  MemoryStore,
  type OwnedReply,
  type ReleaseRequest,
} from "../../src/index.ts";

/** A store whose next answers a test decides; it goes on as a `MemoryStore`. */
export class AnsweringStore extends MemoryStore {
  readonly acquires: AcquireReply[] = [];
  readonly extends: OwnedReply[] = [];
  readonly releases: OwnedReply[] = [];
  readonly completes: CompleteReply[] = [];
  /** Nothing is answered, or done. */
  isSilent = false;
  /** For how long an acquire whose answer was planned may still take effect. */
  lateForMs = 0;
  /** Every lease is extended at once. */
  connectionCameUp: () => void = () => {};

  override attach(onReady?: () => void): () => Promise<void> {
    this.connectionCameUp = onReady ?? (() => {});
    return super.attach();
  }

  override acquire(request: AcquireRequest): void {
    request.deadlineMs = performance.now() + this.lateForMs;
    this.#answer(this.acquires, request, () => super.acquire(request));
  }

  override extend(request: LockRequest<OwnedReply>): void {
    this.#answer(this.extends, request, () => super.extend(request));
  }

  override release(request: ReleaseRequest): void {
    this.#answer(this.releases, request, () => super.release(request));
  }

  override complete(request: CompleteRequest): void {
    this.#answer(this.completes, request, () => super.complete(request));
  }

  #answer<Reply>(planned: Reply[], request: LockRequest<Reply>, otherwise: () => void): void {
    if (this.isSilent) return;
    const reply = planned.shift();
    if (reply === undefined) otherwise();
    else request.answer(reply);
  }
}
