import { once } from "node:events";
import { createConnection, createServer, type Socket } from "node:net";
import { freePort, giveBack } from "./free-port.ts";
import { type Flow, type Match, ProxiedConnection } from "./proxied-connection.ts";
import { byText } from "./script-calls.ts";

/** A TCP proxy in front of Redis that loses, delays and breaks things when it is told to. */
export interface RedisProxy {
  readonly port: number;
  /** How many client connections are open. */
  readonly connections: number;
  /**
   * Every request seen so far, its name first, in the order of arrival. A script of ours that was
   * called by its digest is shown as a call by its text.
   */
  readonly commands: readonly string[][];
  /** How many requests of this name were seen. */
  count(name: string): number;
  /** Redis executes, and nobody hears of it. A connection that lost a reply never gets another. */
  swallowReplies(on: boolean): void;
  /**
   * A silent peer: connections are accepted, and requests never reach Redis. A connection that lost
   * a request stays silent.
   */
  swallowRequests(on: boolean): void;
  /** Requests wait for `releaseHeld`, or for so many milliseconds. They outlive their client. */
  holdRequests(ms?: number): void;
  holdReplies(): void;
  releaseHeld(): void;
  /**
   * The next request that matches is applied by Redis, and its reply is lost; so is every later
   * reply on that connection. Resolves when Redis has answered. With `resetAfterMs` the connection
   * is reset so long after that; with `deaf` its later requests do not reach Redis either.
   */
  loseReplyOnce(match: Match, options?: { resetAfterMs?: number; deaf?: boolean }): Promise<void>;
  /**
   * The next request that matches, and all that follow on its connection, wait for `releaseHeld` or
   * for `releaseAfterMs`. With `resetClientAfterMs` the client's side is reset meanwhile, and what is
   * held still reaches Redis.
   */
  holdRequestOnce(
    match: Match,
    options?: { releaseAfterMs?: number; resetClientAfterMs?: number },
  ): Promise<void>;
  /**
   * The reply to the next request that matches, and all that follow on its connection, wait for
   * `releaseHeld` or for `releaseAfterMs`.
   */
  holdReplyOnce(match: Match, options?: { releaseAfterMs?: number }): Promise<void>;
  /** The connection of the next request that matches is reset before Redis has seen the request. */
  resetBeforeOnce(match: Match): Promise<void>;
  /** From now on every request waits, in its turn, for what `gate` does. */
  waitBeforeEachRequest(gate: () => Promise<unknown>): void;
  /** New connections lead to this port; open ones stay, as behind a virtual IP. */
  leadTo(port: number): void;
  /** Redis has answered each request on an open connection that was not held on its way there. */
  isAnswered(): boolean;
  /** Every open connection is reset (RST). */
  resetAll(): void;
  /** Every client's side is reset; requests that are held still reach Redis when they are released. */
  resetClients(): void;
  /** New connections are refused; open ones stay. */
  refuse(on: boolean): Promise<void>;
  stop(): Promise<void>;
}

interface Trap {
  match: Match;
  spring(connection: ProxiedConnection): void;
}

export async function startProxy(firstTarget: number): Promise<RedisProxy> {
  let targetPort = firstTarget;
  const open = new Set<ProxiedConnection>();
  const clients = new Set<Socket>();
  const commands: string[][] = [];
  const traps = new Set<Trap>();
  const timers = new Set<NodeJS.Timeout>();
  let gate: (() => Promise<unknown>) | undefined;
  const flows: { requests: Flow; replies: Flow } = { requests: "pass", replies: "pass" };

  let accepted = 0;

  const server = createServer({ allowHalfOpen: true }, (client) => {
    const number = accepted++;
    const to = { port: targetPort, host: "127.0.0.1", allowHalfOpen: true };
    const upstream = createConnection(to);
    const connection = new ProxiedConnection(client, upstream, flows, (sent, of) => {
      const argv = byText(sent);
      commands.push(argv);
      const trap = [...traps].find(({ match }) => match(argv, number));
      if (!trap) return;
      traps.delete(trap);
      trap.spring(of);
    });
    if (gate) connection.waitBeforeEachRequest(gate);
    open.add(connection);
    clients.add(client);
    // Somebody who has ended his side has gone, although he may still hear what is on its way.
    for (const over of ["end", "close"]) client.once(over, () => clients.delete(client));
    let sides = 2;
    for (const socket of [client, upstream]) {
      socket.once("close", () => {
        if (--sides === 0) open.delete(connection);
      });
    }
  });
  const listen = async (port: number): Promise<void> => {
    server.listen(port, "127.0.0.1");
    await once(server, "listening");
  };
  // Nobody takes its place while it refuses.
  const port = await freePort();
  await listen(port);

  function set(lane: "requests" | "replies", flow: Flow): void {
    flows[lane] = flow;
    for (const connection of open) connection[lane].flow = flow;
  }
  function releaseHeld(): void {
    flows.requests = "pass";
    flows.replies = "pass";
    for (const connection of open) connection.release();
  }
  function later(ms: number, what: () => void): void {
    const timer = setTimeout(() => {
      timers.delete(timer);
      what();
    }, ms);
    timers.add(timer);
  }
  function trap(match: Match, spring: (of: ProxiedConnection) => void): Promise<void> {
    return new Promise((resolve) => {
      traps.add({
        match,
        spring(connection) {
          spring(connection);
          resolve();
        },
      });
    });
  }

  return {
    port,
    commands,
    get connections() {
      return clients.size;
    },
    isAnswered: () => [...open].every((connection) => connection.isAnswered),
    count: (name) => commands.filter(([n]) => n?.toLowerCase() === name.toLowerCase()).length,
    swallowReplies: (on) => set("replies", on ? "drop" : "pass"),
    swallowRequests: (on) => set("requests", on ? "drop" : "pass"),
    holdRequests(ms) {
      set("requests", "hold");
      if (ms !== undefined) later(ms, releaseHeld);
    },
    holdReplies: () => set("replies", "hold"),
    releaseHeld,
    loseReplyOnce: (match, { resetAfterMs, deaf } = {}) =>
      new Promise((resolve) => {
        void trap(match, (connection) => {
          if (deaf) connection.turnDeaf();
          connection.loseReply(() => {
            if (resetAfterMs !== undefined) later(resetAfterMs, () => connection.reset());
            resolve();
          });
        });
      }),
    holdRequestOnce: (match, { releaseAfterMs, resetClientAfterMs } = {}) =>
      trap(match, (connection) => {
        connection.requests.flow = "hold";
        if (releaseAfterMs !== undefined) later(releaseAfterMs, () => connection.release());
        if (resetClientAfterMs !== undefined) {
          later(resetClientAfterMs, () => connection.resetClient());
        }
      }),
    holdReplyOnce: (match, { releaseAfterMs } = {}) =>
      trap(match, (connection) => {
        connection.replies.flow = "hold";
        if (releaseAfterMs !== undefined) later(releaseAfterMs, () => connection.release());
      }),
    resetBeforeOnce: (match) =>
      trap(match, (connection) => {
        connection.requests.flow = "drop";
        connection.reset();
      }),
    waitBeforeEachRequest(action) {
      gate = action;
      for (const connection of open) connection.waitBeforeEachRequest(action);
    },
    leadTo(target) {
      targetPort = target;
    },
    resetAll() {
      for (const connection of open) connection.reset();
    },
    resetClients() {
      for (const connection of open) connection.resetClient();
    },
    async refuse(on) {
      // close() reports back only when the last connection has ended, and those are to stay.
      if (on && server.listening) server.close();
      if (!on && !server.listening) await listen(port);
    },
    async stop() {
      for (const timer of timers) clearTimeout(timer);
      for (const connection of open) connection.close();
      if (server.listening) {
        server.close();
        await once(server, "close");
      }
      giveBack(port);
    },
  };
}
