import { once } from "node:events";
import { createServer, type IncomingMessage, type Server, type ServerResponse } from "node:http";
import type { AddressInfo } from "node:net";
import { setTimeout as sleep } from "node:timers/promises";

export interface Charged {
  readonly id: string;
  readonly orderNumber: number;
  readonly cents: number;
}

/** What the network and the provider's bank do to a charge. */
export interface Behaviour {
  /** How long a charge takes. */
  latencyMs: number;
  /** Whether the answer of the next charge is lost, after it was made. */
  losesReply: () => boolean;
}

/**
 * A payment provider: an HTTP service of its own with an idempotency key of its own.
 *
 * `POST /charges` `{ orderNumber, cents }` answers 201 `{ id, orderNumber, cents }`. Requests with the
 * same `Idempotency-Key` are one charge; requests without one are a charge each.
 */
export class PaymentProvider {
  readonly behaviour: Behaviour;
  readonly charges: Charged[] = [];
  readonly #byKey = new Map<string, Promise<Charged>>();
  readonly #server: Server;

  constructor(behaviour: Partial<Behaviour> = {}) {
    this.behaviour = { latencyMs: 800, losesReply: () => false, ...behaviour };
    this.#server = createServer((req, res) => {
      this.#answer(req, res).catch(() => res.destroy());
    });
  }

  /** @returns its URL, on a free port of 127.0.0.1. */
  async listen(): Promise<string> {
    this.#server.listen(0, "127.0.0.1");
    await once(this.#server, "listening");
    return `http://127.0.0.1:${(this.#server.address() as AddressInfo).port}`;
  }

  close(): void {
    this.#server.close();
    this.#server.closeAllConnections();
  }

  async #answer(req: IncomingMessage, res: ServerResponse): Promise<void> {
    if (req.method !== "POST" || req.url !== "/charges") {
      res.writeHead(404).end();
      return;
    }
    const chunks: Buffer[] = [];
    for await (const chunk of req) chunks.push(chunk as Buffer);
    const wanted = JSON.parse(Buffer.concat(chunks).toString()) as Omit<Charged, "id">;
    const isReplyLost = this.behaviour.losesReply();
    const charge = await this.#charge(req.headers["idempotency-key"], wanted);
    if (isReplyLost) {
      // The money has moved, and the shop does not learn it.
      res.destroy();
      return;
    }
    res.writeHead(201, { "Content-Type": "application/json" }).end(JSON.stringify(charge));
  }

  /** It is made also if the shop does not wait for it. */
  #charge(key: string | string[] | undefined, wanted: Omit<Charged, "id">): Promise<Charged> {
    if (typeof key !== "string") return this.#make(wanted);
    const earlier = this.#byKey.get(key);
    if (earlier !== undefined) return earlier;
    const made = this.#make(wanted);
    this.#byKey.set(key, made);
    return made;
  }

  async #make({ orderNumber, cents }: Omit<Charged, "id">): Promise<Charged> {
    await sleep(this.behaviour.latencyMs);
    const charge = { id: `pay-${this.charges.length + 1}`, orderNumber, cents };
    this.charges.push(charge);
    return charge;
  }
}
