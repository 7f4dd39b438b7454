import { once } from "node:events";
import { createServer, type Server, type ServerResponse } from "node:http";
import type { AddressInfo } from "node:net";

/** What the recipes' shops pay at: it counts the charges, and answers none while it is held. */
export class Bank {
  charges = 0;
  readonly #server: Server;
  #waiting: ServerResponse[] | undefined;

  private constructor() {
    this.#server = createServer((_req, res) => {
      this.charges += 1;
      res.setHeader("Content-Type", "application/json");
      if (this.#waiting === undefined) res.end(JSON.stringify({ charge: this.charges }));
      else this.#waiting.push(res);
    });
  }

  static async open(): Promise<Bank> {
    const bank = new Bank();
    bank.#server.listen(0, "127.0.0.1");
    await once(bank.#server, "listening");
    return bank;
  }

  get url(): string {
    return `http://127.0.0.1:${(this.#server.address() as AddressInfo).port}`;
  }

  hold(): void {
    this.#waiting ??= [];
  }

  release(): void {
    for (const res of this.#waiting ?? []) res.end(JSON.stringify({ charge: this.charges }));
    this.#waiting = undefined;
  }

  close(): void {
    this.#server.close();
    this.#server.closeAllConnections();
  }
}
