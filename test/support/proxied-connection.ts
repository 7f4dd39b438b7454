import type { Socket } from "node:net";
import { argvOf, type Frame, FrameReader } from "./resp.ts";

/** Whether this is the request; connections are numbered as they come. */
export type Match = (argv: string[], connection: number) => boolean;

/** What happens to a value on its way: it goes on, waits for `release`, or vanishes. */
export type Flow = "pass" | "hold" | "drop";

/** One direction of a connection. */
export class Lane {
  flow: Flow;
  /** A stream that lost something stays lost: what came after would be taken for what is missing. */
  #torn = false;
  readonly #to: Socket;
  readonly #held: Buffer[] = [];

  constructor(to: Socket, flow: Flow) {
    this.#to = to;
    this.flow = flow;
  }

  get isHolding(): boolean {
    return this.#held.length > 0;
  }

  push(bytes: Buffer): void {
    if (this.flow === "drop") this.#torn = true;
    if (this.#torn) return;
    if (this.flow === "hold") this.#held.push(bytes);
    else if (this.#to.writable) this.#to.write(bytes);
  }

  release(): void {
    this.flow = "pass";
    for (const bytes of this.#held.splice(0)) this.push(bytes);
  }
}

/** One client's connection through the proxy, with both of its directions cut into values. */
export class ProxiedConnection {
  readonly requests: Lane;
  readonly replies: Lane;
  readonly #client: Socket;
  readonly #upstream: Socket;
  readonly #onRequest: (argv: string[], connection: ProxiedConnection) => void;
  #requestCount = 0;
  #replyCount = 0;
  #loss: { reply: number; happened: () => void } | undefined;
  #deaf = false;
  #gate: (() => Promise<unknown>) | undefined;
  #gated: Promise<unknown> = Promise.resolve();

  constructor(
    client: Socket,
    upstream: Socket,
    flows: { requests: Flow; replies: Flow },
    onRequest: (argv: string[], connection: ProxiedConnection) => void,
  ) {
    this.#client = client;
    this.#upstream = upstream;
    this.#onRequest = onRequest;
    this.requests = new Lane(upstream, flows.requests);
    this.replies = new Lane(client, flows.replies);
    const requests = new FrameReader();
    client.on("data", (chunk) => {
      for (const frame of requests.push(chunk)) this.#request(frame);
    });
    const replies = new FrameReader();
    upstream.on("data", (chunk) => {
      for (const frame of replies.push(chunk)) this.#reply(frame);
    });
    for (const socket of [client, upstream]) socket.setNoDelay(true).on("error", () => {});
    // Each direction ends by itself, behind what was said before: whoever ends his own still hears
    // the other.
    client.on("end", () => this.#endUpstream());
    client.on("close", () => this.#endUpstream());
    upstream.on("end", () => this.#endClient());
    upstream.on("close", () => this.#endClient());
  }

  /**
   * The reply to the request that is being read now is lost, and every later one with it: TCP cannot
   * leave out one. Replies to earlier requests still arrive.
   */
  loseReply(happened: () => void): void {
    this.#loss = { reply: this.#requestCount, happened };
  }

  /** From the next request on, nothing that the client says arrives. */
  turnDeaf(): void {
    this.#deaf = true;
  }

  /** Every request waits, in its turn, for what `gate` does. */
  waitBeforeEachRequest(gate: () => Promise<unknown>): void {
    this.#gate = gate;
  }

  release(): void {
    this.requests.release();
    this.replies.release();
    if (this.#client.readableEnded || this.#client.destroyed) this.#endUpstream();
    if (this.#upstream.readableEnded || this.#upstream.destroyed) this.#endClient();
  }

  reset(): void {
    this.#client.resetAndDestroy();
    this.#upstream.resetAndDestroy();
  }

  /** The client's side alone is reset; requests that are held still reach Redis when they are released. */
  resetClient(): void {
    this.#client.resetAndDestroy();
  }

  /** Ends both sides, also when requests are still held. */
  close(): void {
    this.#client.destroy();
    this.#upstream.destroy();
  }

  #request({ bytes }: Frame): void {
    if (this.#deaf) return;
    this.#requestCount++;
    this.#onRequest(argvOf(bytes), this);
    if (this.#gate === undefined) {
      this.requests.push(bytes);
      return;
    }
    const gate = this.#gate;
    this.#gated = this.#gated.then(gate).then(
      () => this.requests.push(bytes),
      () => this.reset(),
    );
  }

  #reply({ bytes, type }: Frame): void {
    // A push answers nothing, so it must not be counted against a request.
    if (type !== ">") this.#replyCount++;
    if (this.#loss && this.#replyCount >= this.#loss.reply) {
      if (this.#replyCount === this.#loss.reply && type !== ">") this.#loss.happened();
      return;
    }
    this.replies.push(bytes);
  }

  /** Requests that are held outlive their client: they are the late copies. */
  #endUpstream(): void {
    void this.#gated.then(() => {
      if (!this.requests.isHolding) this.#upstream.end();
    });
  }

  #endClient(): void {
    if (!this.replies.isHolding) this.#client.end();
  }
}
