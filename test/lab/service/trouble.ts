import { setTimeout as sleep } from "node:timers/promises";
import type { RedisProxy } from "../../support/proxy.ts";
import type { RedisServer } from "../../support/server-process.ts";
import type { Random } from "../simulation/time/random.ts";
import { now } from "./protocol.ts";
import type { Site, SiteNode } from "./site.ts";

/** Random faults, one after another, each healed before the next. */
export class Trouble {
  readonly counts: Record<string, number> = {};
  /** When the server lost everything. */
  readonly restarts: { readonly from: number; readonly until: number }[] = [];
  readonly #site: Site;
  readonly #random: Random;
  /** The node that has the next fault. */
  #node: SiteNode;

  constructor(site: Site, random: Random) {
    this.#site = site;
    this.#random = random;
    this.#node = random.pick(site.nodes);
  }

  get #proxy(): RedisProxy {
    return this.#node.proxy;
  }

  get #server(): RedisServer {
    return this.#node.server;
  }

  async goOnUntil(end: number): Promise<void> {
    while (now() < end) {
      await sleep(this.#random.between(100, 2_000));
      this.#node = this.#random.pick(this.#site.nodes);
      const [name, fault] = this.#random.pick(this.#possible);
      this.counts[name] = (this.counts[name] ?? 0) + 1;
      await fault();
    }
  }

  get #possible(): [string, () => Promise<unknown>][] {
    const { mayRestart } = this.#site;
    return Object.entries(this.#faults).filter(([name]) => name !== "restart" || mayRestart);
  }

  readonly #faults: Record<string, () => Promise<unknown>> = {
    reset: async () => this.#proxy.resetAll(),
    "reply lost": () => this.#loseReply({}),
    "reply lost, reset": () => this.#loseReply({ resetAfterMs: this.#random.between(0, 500) }),
    "requests lost": async () => {
      this.#proxy.swallowRequests(true);
      await this.#aWhile();
      this.#proxy.swallowRequests(false);
      // Otherwise the connections stay silent, and the client has to find out by itself.
      if (this.#random.next() < 0.5) this.#proxy.resetAll();
    },
    "requests late": async () => {
      this.#proxy.holdRequests();
      await this.#aWhile();
      this.#proxy.releaseHeld();
    },
    "replies late": async () => {
      this.#proxy.holdReplies();
      await this.#aWhile();
      this.#proxy.releaseHeld();
    },
    refused: async () => {
      await this.#proxy.refuse(true);
      this.#proxy.resetAll();
      await this.#aWhile();
      await this.#proxy.refuse(false);
    },
    silence: async () => {
      this.#server.pause();
      await this.#aWhile();
      this.#server.resume();
    },
    restart: async () => {
      const from = now();
      await this.#server.kill();
      await this.#aWhile();
      await this.#server.restart();
      this.restarts.push({ from, until: now() });
    },
  };

  async #loseReply(options: { resetAfterMs?: number }): Promise<void> {
    const lost = this.#proxy.loseReplyOnce(([name]) => name?.toLowerCase() === "eval", options);
    // Without traffic nothing is lost, and the next command will do.
    await Promise.race([lost, sleep(2_000)]);
  }

  async #aWhile(): Promise<void> {
    await sleep(this.#random.between(50, 3_000));
  }
}
