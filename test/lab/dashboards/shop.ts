import { Child } from "../../support/child.ts";
import { freePort } from "../../support/free-port.ts";
import { freshUser } from "../../support/ids.ts";

interface Order {
  readonly user?: string;
  readonly key?: string;
  readonly item?: number;
  readonly workMs?: number;
}

/** The shop in a process of its own, and its customers. */
export class Shop {
  readonly metricsPort: number;
  /** Every user who has come. */
  readonly users: string[] = [];
  readonly statuses: Record<number, number> = {};
  readonly #child: Child<{ port: number }>;
  readonly #url: string;

  private constructor(child: Child<{ port: number }>, url: string, metricsPort: number) {
    this.#child = child;
    this.#url = url;
    this.metricsPort = metricsPort;
  }

  static async start(redisPort: number): Promise<Shop> {
    const metricsPort = await freePort();
    const script = new URL("./shop-process.ts", import.meta.url);
    const child = new Child<{ port: number }>(script, [`${redisPort}`, `${metricsPort}`]);
    const { port } = await child.next();
    return new Shop(child, `http://127.0.0.1:${port}`, metricsPort);
  }

  /** An order, or a refund, which has no submission id. Resolves with its status. */
  async submit(path: "/orders" | "/refunds", order: Order = {}): Promise<number> {
    const { item = 1, key = freshUser(), user = this.newUser(), workMs = 5 } = order;
    const answer = await fetch(this.#url + path, {
      method: "POST",
      headers: {
        "content-type": "application/json",
        "idempotency-key": key,
        "x-user-id": user,
        "x-work-ms": `${workMs}`,
      },
      body: JSON.stringify({ item }),
    });
    await answer.arrayBuffer();
    this.statuses[answer.status] = (this.statuses[answer.status] ?? 0) + 1;
    return answer.status;
  }

  newUser(): string {
    this.users.push(freshUser());
    return this.users.at(-1) as string;
  }

  /** What one customer does: an order, a second click on it, the order again, another one with its key, a refund. */
  async visit(): Promise<void> {
    const [user, key] = [this.newUser(), freshUser()];
    const first = this.submit("/orders", { user, key, workMs: 30 });
    const second = this.submit("/refunds", { user });
    await Promise.all([first, second]);
    await this.submit("/orders", { user, key });
    await this.submit("/orders", { user, key, item: 2 });
    await this.submit("/refunds", { user });
  }

  /** What the process exports. */
  async metrics(): Promise<string> {
    const answer = await fetch(`http://127.0.0.1:${this.metricsPort}/metrics`);
    return await answer.text();
  }

  async stop(): Promise<void> {
    await this.#child.kill();
  }
}
