import { type ClientPort, isServerError, plainError } from "./clients/port.ts";

/** A database, on one connection. */
interface Place {
  readonly database: number;
  readonly connection: unknown;
}

interface Reply {
  readonly kind: string;
  readonly value?: unknown;
  readonly error?: unknown;
}

/** The connection: it follows the question of the proof and is notified of the outcome. */
interface Prover {
  /** Calls `tell` at most once, and never with an answer that comes after the connection's loss. */
  follow(answer: Promise<unknown>, tell: (answer: Reply) => void): void;
  proved(): void;
  refused(error: Error): void;
}

/**
 * Rule 22: whether a connection is in the database of its client. No request of a lock is written
 * before the server has said so on this very connection.
 */
export class DatabaseProof {
  readonly #client: ClientPort;
  readonly #prover: Prover;
  #proved: Place | undefined;
  /** The question under way. The answer to an earlier one is ignored. */
  #asked: Pick<Place, "connection"> | undefined;

  constructor(client: ClientPort, prover: Prover) {
    this.#client = client;
    this.#prover = prover;
  }

  /** Whether the connection that the client has now is proven to be in the client's database. */
  get isDone(): boolean {
    const { database, connection } = this.#client;
    // The connection is compared, because no event is heard while no lock is open.
    return this.#proved?.database === database && this.#proved.connection === connection;
  }

  /** The connection was lost, or the application has selected a database: earlier answers say nothing. */
  forget(): void {
    this.#proved = undefined;
    this.#asked = undefined;
  }

  /** Asks, unless the answer is there or under way. The connection must be ready. */
  ask(): void {
    const { connection } = this.#client;
    if (this.isDone || (this.#asked && this.#asked.connection === connection)) return;
    const asked = { connection };
    this.#asked = asked;
    this.#prover.follow(this.#client.askDatabase(), ({ value, error }: Reply) => {
      if (this.#asked !== asked) return;
      this.#asked = undefined;
      const { database } = this.#client;
      if (value === database) {
        this.#proved = { database, connection };
        this.#prover.proved();
      } else if (typeof value === "number") {
        const text = `the connection is in database ${value}, and not in database ${database}`;
        this.#prover.refused(new Error(text));
      } else if (isServerError(error)) this.#prover.refused(plainError(error));
    });
  }
}
