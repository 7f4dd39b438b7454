import { type ClientPort, isServerError, plainError } from "./clients/port.ts";
import type { CallResult, ConnectionWatcher } from "./connection.ts";

type Follow = (answer: Promise<unknown>, tell: (result: CallResult) => void) => void;

/** Rule 22: whether the commands of one connection go to the client's database. */
export class DatabaseProof {
  readonly #client: ClientPort;
  readonly #follow: Follow;
  /** Whether to ask: the client needs the proof, or has needed it on an earlier database. */
  #isNeeded: boolean;
  /** The database that a connection of the client was proved to be in, and that connection. */
  #proved: { readonly database: number; readonly connection: unknown } | undefined;
  #asked: { readonly connection: unknown } | undefined;

  /**
   * @param follow reports the result of a call; without an answer, the connection counts as silent
   * (rule 9).
   */
  constructor(client: ClientPort, follow: Follow) {
    this.#client = client;
    this.#follow = follow;
    this.#isNeeded = client.needsProof;
  }

  get isCertain(): boolean {
    if (!this.#isNeeded) return true;
    const { database, connection } = this.#client;
    // Compare the connection, too: while no lock is open, the event of its loss is not heard.
    return this.#proved?.database === database && this.#proved.connection === connection;
  }

  /** Asks which database the connection is in, unless it was asked. It must be ready. */
  ask(watcher: ConnectionWatcher | undefined): void {
    this.#isNeeded ||= this.#client.needsProof;
    const { connection } = this.#client;
    if (this.isCertain || (this.#asked && this.#asked.connection === connection)) return;
    const asked = { connection };
    this.#asked = asked;
    this.#follow(this.#client.askDatabase(), (result) => {
      if (this.#asked !== asked) return;
      this.#asked = undefined;
      const { database } = this.#client;
      if (result.kind === "error" && isServerError(result.error)) {
        watcher?.failed(plainError(result.error));
      } else if (result.kind === "value" && result.value === database) {
        this.#proved = { database, connection };
        watcher?.ready();
      } else if (result.kind === "value" && typeof result.value === "number") {
        const text = `the connection is in database ${result.value}, and not in database ${database}`;
        watcher?.failed(new Error(text));
      }
    });
  }

  /** Called when the connection was lost, or the application has selected another database. */
  forget(): void {
    this.#isNeeded ||= this.#client.needsProof;
    this.#proved = undefined;
    this.#asked = undefined;
  }
}
