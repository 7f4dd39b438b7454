import {
  type AcquireReply,
  type AcquireRequest,
  type CompleteReply,
  type CompleteRequest,
  isNoAnswer,
  type LockCommand,
  type NoAnswer,
  type OwnedReply,
} from "../../lock/store.ts";
import { AcknowledgedConnections } from "./acknowledged-connections.ts";
import { AcquirePart } from "./acquire-part.ts";
import { ConnectionPair } from "./connection-pair.ts";
import type { RedisClient } from "./ioredis.ts";
import { ReplicaWaits } from "./replica-waits.ts";

/** How both are written without waiting for anybody. */
interface Writes {
  acquire(request: AcquireRequest): void;
  complete(request: CompleteRequest): void;
}

/**
 * Rule 21: an acquire and a complete whose answer counts only when so many replicas have confirmed
 * it. Both are written as ever. What they have left is then written once more, unchanged, on a
 * connection that may be blocked, with a `WAIT` right behind it. A master's writes reach its replicas
 * in order, so a replica that has the second write has the first.
 *
 * Fewer replicas is `unknown`: the lock asks again, and at the end of its time retires what it left.
 */
export class Acknowledged {
  readonly #client: RedisClient;
  readonly #writes: Writes;
  readonly #connections: AcknowledgedConnections;
  readonly #waits: ReplicaWaits;

  constructor(client: RedisClient, replicas: number, writes: Writes) {
    this.#client = client;
    this.#writes = writes;
    this.#connections = AcknowledgedConnections.of(client);
    this.#waits = new ReplicaWaits(client, replicas, () => this.#connections.pair());
  }

  attach(): () => void {
    return this.#connections.attach();
  }

  acquire(request: AcquireRequest): void {
    const refusal = this.#waits.refusal();
    // Nothing is taken that nobody may wait for.
    if (refusal !== undefined) {
      request.answer(refusal);
      return;
    }
    const { command } = request;
    const answer = (reply: AcquireReply): void => {
      // All the others take nothing, so there is nothing to confirm.
      if (reply.kind !== "taken" && reply.kind !== "mine") {
        request.answer(reply);
        return;
      }
      this.#touch(command.key, command, (touched) => request.answer(ifConfirmed(touched, reply)));
    };
    this.#writes.acquire(new AcquirePart(request, answer));
  }

  complete(request: CompleteRequest): void {
    const { command, deadlineMs, record, expiresAtMs, cooldownUntilMs } = request;
    const answer = (reply: CompleteReply): void => {
      if (reply.kind !== "recorded" && reply.kind !== "late") {
        request.answer(reply);
        return;
      }
      const key = ConnectionPair.of(this.#client).recordKey(command);
      this.#touch(key, command, (touched) => request.answer(ifConfirmed(touched, reply)));
    };
    this.#writes.complete({ command, deadlineMs, record, expiresAtMs, cooldownUntilMs, answer });
  }

  readonly #touch: Touch = (key, command, answer) => {
    this.#waits.add({ key, command, deadlineMs: undefined, answer });
  };
}

type Touch = (key: string, command: LockCommand, answer: (reply: OwnedReply) => void) => void;

/** Whatever else came of the touch: the first write has taken effect, and may be lost. */
function ifConfirmed<Reply>(touched: OwnedReply, reply: Reply): Reply | NoAnswer {
  return touched.kind === "done" ? reply : { kind: "unknown", cause: causeOf(touched) };
}

function causeOf(touched: OwnedReply): Error {
  if (!isNoAnswer(touched)) return new Error("the key was gone before a replica had confirmed it");
  return touched.kind === "unsent"
    ? new Error(touched.reason, touched.cause && { cause: touched.cause })
    : touched.cause;
}
