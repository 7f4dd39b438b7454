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

/** What the proof asks of its connection, and tells it. */
interface Prover {
  /** Calls `tell` at most once, and never with what comes after the loss of the connection. */
  follow(answer: Promise<unknown>, tell: (answer: SelectReply) => void): void;
  proved(): void;
  refused(error: Error): void;
}

/**
 * Rule 22: whether a connection is in the database of its client. ioredis selects it as a connection
 * comes up and goes on in database 0 where that was refused. So nothing is written before a `SELECT`
 * of our own was answered OK on this very connection.
 *
 * A client that has always been on database 0, where every connection begins, needs no proof.
 */
export class DatabaseProof {
  readonly #client: RedisClient;
  readonly #prover: Prover;
  #proved: Place | undefined;
  /** The `SELECT` whose answer counts. */
  #asked: Place | undefined;

  constructor(client: RedisClient, prover: Prover) {
    this.#client = client;
    this.#prover = prover;
  }

  /** Whether there is nothing left to prove. */
  get isDone(): boolean {
    const database = databaseOf(this.#client);
    // The stream tells also where nothing is watched, as after the close of the last lock.
    return this.#proved?.database === database && this.#proved.stream === streamOf(this.#client);
  }

  /** The connection was lost, or the application has selected a database: earlier answers say nothing. */
  forget(): void {
    this.#proved = undefined;
    this.#asked = undefined;
  }

  /** Asks, on a connection that is ready, unless that is done or under way. */
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
