import type { SimulatedRedis } from "../server/simulated-redis.ts";
import type { EventLoop, Machine } from "../time/event-loop.ts";

/** What happens to one write and its answer on their way. All zero is a healthy network. */
export interface Delays {
  readonly requestMs: number;
  readonly replyMs: number;
}

const healthy: Delays = { requestMs: 0, replyMs: 0 };

/**
 * One TCP connection: two directions, each first in, first out. What was written before the client
 * lost the connection may still land afterwards; what is answered then is never heard.
 */
export class Connection {
  readonly #loop: EventLoop;
  readonly #client: Machine;
  readonly #server: SimulatedRedis;
  readonly #latency: () => number;
  readonly #serverTerm: number;
  /** Nothing that overtakes: the time of the last arrival in each direction. */
  #lastThere = 0;
  #lastBack = 0;
  #closedAtClient = false;
  /** The client has said that it writes nothing more. */
  isEnding = false;
  #vanished = false;
  /** What has arrived behind a command that is not answered yet. */
  #behind: (() => void)[] | undefined;
  /** The server's last write on it, in the order of its writes; 0 for none. */
  lastWrite = 0;
  /** The database that the server executes its commands in. */
  database = 0;

  constructor(loop: EventLoop, client: Machine, server: SimulatedRedis, latency: () => number) {
    this.#loop = loop;
    this.#client = client;
    this.#server = server;
    this.#latency = latency;
    this.#serverTerm = server.term;
  }

  get isOpen(): boolean {
    return !this.#closedAtClient;
  }

  /**
   * @param execute what the server does with it; runs at most once.
   * @param answered what the client does with the answer; runs at most once, after `execute`.
   */
  write(execute: () => void, answered: () => void): void {
    this.writeBlocking<void>((end) => end(execute()), answered);
  }

  /**
   * Writes a command that may be answered later: the server reads nothing more meanwhile.
   *
   * @param begin runs at most once, and calls `end` once at most.
   */
  writeBlocking<Answer>(
    begin: (end: (answer: Answer) => void) => void,
    answered: (answer: Answer) => void,
    { requestMs, replyMs }: Delays = healthy,
  ): void {
    const { now } = this.#loop;
    this.#lastThere = Math.max(this.#lastThere, now + this.#latency() + requestMs);
    this.#server.machine.after(this.#lastThere - now, () => {
      this.#inTurn(() => {
        begin((answer) => {
          const answeredAt = this.#loop.now;
          this.#lastBack = Math.max(this.#lastBack, answeredAt + this.#latency() + replyMs);
          this.#client.after(this.#lastBack - answeredAt, () => {
            if (!this.#closedAtClient) answered(answer);
          });
          this.#next();
        });
      });
    });
  }

  #inTurn(execute: () => void): void {
    if (this.#vanished || this.#server.term !== this.#serverTerm) return;
    if (this.#behind !== undefined) {
      this.#behind.push(execute);
      return;
    }
    this.#behind = [];
    execute();
  }

  #next(): void {
    const behind = this.#behind ?? [];
    this.#behind = undefined;
    for (const execute of behind) this.#inTurn(execute);
  }

  /** Both directions stand still, and nothing of it is lost. */
  stall(untilMs: number): void {
    this.#lastThere = Math.max(this.#lastThere, untilMs);
    this.#lastBack = Math.max(this.#lastBack, untilMs);
  }

  /** @param stillLands whether what is on its way to the server arrives there nevertheless. */
  closeAtClient(stillLands: boolean): void {
    this.#closedAtClient = true;
    if (!stillLands) this.#vanished = true;
  }
}
