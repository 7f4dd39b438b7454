import type { Socket } from "node:net";

/** One whole value of the Redis protocol as it came over the wire. */
export interface Frame {
  readonly bytes: Buffer;
  /** The type byte: `*` for a request, `>` for a push that answers no request. */
  readonly type: string;
}

/** Cuts a byte stream into whole values (RESP2 and RESP3), however it was split into chunks. */
export class FrameReader {
  #rest: Buffer = Buffer.alloc(0);

  push(chunk: Buffer): Frame[] {
    const bytes = Buffer.concat([this.#rest, chunk]);
    const frames: Frame[] = [];
    let start = 0;
    for (let end = endOfValue(bytes, 0); end !== -1; end = endOfValue(bytes, start)) {
      frames.push({
        bytes: bytes.subarray(start, end),
        type: String.fromCharCode(bytes[start] ?? 0),
      });
      start = end;
    }
    this.#rest = bytes.subarray(start);
    return frames;
  }
}

/** The arguments of a request, its name first. */
export function argvOf(request: Buffer): string[] {
  const argv: string[] = [];
  let at = endOfLine(request, 0);
  while (at !== -1 && at < request.length) {
    const from = endOfLine(request, at);
    const end = endOfValue(request, at);
    if (from === -1 || end === -1) break;
    argv.push(request.toString("utf8", from, end - 2));
    at = end;
  }
  return argv;
}

/** Where the value that begins at `at` ends, or -1 while part of it is still to come. */
function endOfValue(bytes: Buffer, at: number): number {
  const line = endOfLine(bytes, at);
  if (line === -1) return -1;
  const type = String.fromCharCode(bytes[at] ?? 0);
  const count = Number(bytes.toString("latin1", at + 1, line - 2));
  if ("$!=".includes(type)) {
    // A length of -1 is RESP2's null: nothing follows.
    const end = count < 0 ? line : line + count + 2;
    return end <= bytes.length ? end : -1;
  }
  if ("*~>".includes(type)) return endOfValues(bytes, line, count);
  if (type === "%") return endOfValues(bytes, line, count * 2);
  // An attribute is a map that comes before the value it belongs to.
  if (type === "|") return endOfValues(bytes, line, count * 2 + 1);
  return line;
}

function endOfValues(bytes: Buffer, from: number, count: number): number {
  let at = from;
  for (let i = 0; i < count && at !== -1; i++) at = endOfValue(bytes, at);
  return at;
}

function endOfLine(bytes: Buffer, at: number): number {
  const end = bytes.indexOf("\r\n", at, "latin1");
  return end === -1 ? -1 : end + 2;
}

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

  get holding(): number {
    return this.#held.length;
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

  /** Redis has answered each request that was not held on its way there. */
  get isAnswered(): boolean {
    return this.#replyCount >= this.#requestCount - this.requests.holding;
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
      if (this.requests.holding === 0) this.#upstream.end();
    });
  }

  #endClient(): void {
    if (this.replies.holding === 0) this.#client.end();
  }
}
