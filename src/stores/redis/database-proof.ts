import {
  databaseOf,
  isServerError,
  plainError,
  type RedisClient,
  select,
  streamOf,
} from "./ioredis.ts";

interface Answer {
  readonly kind: string;
  readonly value?: unknown;
  readonly error?: unknown;
}

/** A database, on one connection. */
interface Place {
  readonly database: number;
  readonly stream: unknown;
}

/** Calls `tell` at most once, and never with what comes after the loss of the connection. */
type Follow = (answer: Promise<unknown>, tell: (result: Answer) => void) => void;

/**
 * Rule 22: whether a connection is in the database of its client. ioredis selects it as a connection
 * comes up and goes on in database 0 where that was refused. So nothing is written before a `SELECT`
 * of our own was answered OK on this very connection.
 *
 * A client that has always been on database 0, where every connection begins, needs no proof.
 */
export class DatabaseProof {
  readonly #client: RedisClient;
  readonly #follow: Follow;
  readonly #onProved: () => void;
  readonly #onRefused: (error: Error) => void;
  #proved: Place | undefined;
  /** The `SELECT` whose answer counts. */
  #asked: Place | undefined;

  constructor(
    client: RedisClient,
    follow: Follow,
    onProved: () => void,
    onRefused: (error: Error) => void,
  ) {
    this.#client = client;
    this.#follow = follow;
    this.#onProved = onProved;
    this.#onRefused = onRefused;
  }

  /** Whether there is nothing left to prove. */
  get isDone(): boolean {
    const database = databaseOf(this.#client);
    // The stream tells also where nothing is watched, as after the close of the last lock.
    return this.#proved?.database === database && this.#proved.stream === streamOf(this.#client);
  }

  /** The connection was lost. */
  forget(): void {
    this.#proved = undefined;
    this.#asked = undefined;
  }

  /** The application has selected a database: an answer to an earlier `SELECT` says nothing now. */
  selected(): void {
    this.forget();
  }

  /** Asks, on a connection that is ready, unless that is done or under way. */
  ask(): void {
    const asked = { database: databaseOf(this.#client), stream: streamOf(this.#client) };
    if (this.isDone || (this.#asked && this.#asked.stream === asked.stream)) return;
    this.#asked = asked;
    this.#follow(select(this.#client, asked.database), (result) => {
      if (this.#asked !== asked) return;
      this.#asked = undefined;
      this.#answered(asked, result);
    });
  }

  #answered(asked: Place, { value, error }: Answer): void {
    if (value === "OK") {
      this.#proved = asked;
      this.#onProved();
    } else if (isServerError(error)) this.#onRefused(plainError(error));
  }
}
