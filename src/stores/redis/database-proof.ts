import {
  databaseOf,
  isServerError,
  plainError,
  type RedisClient,
  select,
  streamOf,
} from "./ioredis.ts";

/** A database, on one connection. */
interface Place {
  readonly database: number;
  readonly stream: unknown;
}

interface SelectReply {
  readonly kind: string;
  readonly value?: unknown;
  readonly error?: unknown;
}

/** The connection: it follows the `SELECT` of the proof and is notified of the outcome. */
interface Prover {
  /** Calls `tell` at most once, and never with an answer that comes after the connection's loss. */
  follow(answer: Promise<unknown>, tell: (answer: SelectReply) => void): void;
  proved(): void;
  refused(error: Error): void;
}

/**
 * Rule 22: whether a connection is in the database of its client. ioredis selects it as a connection
 * comes up and goes on in database 0 where that was refused. So no request of a lock is written
 * before a `SELECT` of our own was answered OK on this very connection.
 *
 * A client that has always been on database 0, where every connection begins, needs no proof.
 */
export class DatabaseProof {
  readonly #client: RedisClient;
  readonly #prover: Prover;
  #proved: Place | undefined;
  /** The `SELECT` under way. The answer to an earlier one is ignored. */
  #asked: Place | undefined;

  constructor(client: RedisClient, prover: Prover) {
    this.#client = client;
    this.#prover = prover;
  }

  /** Whether the connection that the client has now is proven to be in the client's database. */
  get isDone(): boolean {
    const database = databaseOf(this.#client);
    // The stream tells a new connection also where no event is heard: no lock is open.
    return this.#proved?.database === database && this.#proved.stream === streamOf(this.#client);
  }

  /** The connection was lost, or the application has selected a database: earlier answers say nothing. */
  forget(): void {
    this.#proved = undefined;
    this.#asked = undefined;
  }

  /** Writes a `SELECT`, unless one is answered OK or under way. The connection must be ready. */
  ask(): void {
    const asked = { database: databaseOf(this.#client), stream: streamOf(this.#client) };
    if (this.isDone || (this.#asked && this.#asked.stream === asked.stream)) return;
    this.#asked = asked;
    this.#prover.follow(select(this.#client, asked.database), ({ value, error }: SelectReply) => {
      if (this.#asked !== asked) return;
      this.#asked = undefined;
      if (value === "OK") {
        this.#proved = asked;
        this.#prover.proved();
      } else if (isServerError(error)) this.#prover.refused(plainError(error));
    });
  }
}
