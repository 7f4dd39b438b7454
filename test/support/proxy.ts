import { once } from "node:events";
import { type AddressInfo, createConnection, createServer, type Socket } from "node:net";
import { type Flow, type Match, ProxiedConnection } from "./proxied-connection.ts";

/** A TCP proxy in front of Redis that loses, delays and breaks things when it is told to. */
export interface RedisProxy {
  readonly port: number;
  /** How many client connections are open. */
  readonly connections: number;
  /** Every request seen so far, its name first, in the order of arrival. */
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
  /** Replies wait for `releaseHeld`. */
  holdReplies(): void;
  releaseHeld(): void;
  /**
   * The next request that matches is applied by Redis, and its reply is lost; so is every later
   * reply on that connection. Resolves when Redis has answered. With `resetAfterMs` the connection
   * is reset so long after that.
   */
  loseReplyOnce(match: Match, options?: { resetAfterMs?: number }): Promise<void>;
  /** The next request that matches, and all that follow on its connection, wait for `releaseHeld`. */
  holdRequestOnce(match: Match): Promise<void>;
  /** Every open connection is reset (RST). */
  resetAll(): void;
  /** New connections are refused; open ones stay. */
  refuse(on: boolean): Promise<void>;
  stop(): Promise<void>;
}

interface Trap {
  match: Match;
  spring(connection: ProxiedConnection): void;
}

export async function startProxy(targetPort: number): Promise<RedisProxy> {
  const open = new Set<ProxiedConnection>();
  const clients = new Set<Socket>();
  const commands: string[][] = [];
  const traps = new Set<Trap>();
  const timers = new Set<NodeJS.Timeout>();
  const flows: { requests: Flow; replies: Flow } = { requests: "pass", replies: "pass" };

  const server = createServer((client) => {
    const upstream = createConnection({ port: targetPort, host: "127.0.0.1" });
    const connection = new ProxiedConnection(client, upstream, flows, (argv, of) => {
      commands.push(argv);
      const trap = [...traps].find(({ match }) => match(argv));
      if (!trap) return;
      traps.delete(trap);
      trap.spring(of);
    });
    open.add(connection);
    clients.add(client);
    client.once("close", () => clients.delete(client));
    upstream.once("close", () => open.delete(connection));
  });
  const listen = async (port: number): Promise<void> => {
    server.listen(port, "127.0.0.1");
    await once(server, "listening");
  };
  await listen(0);
  const { port } = server.address() as AddressInfo;

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

  return {
    port,
    commands,
    get connections() {
      return clients.size;
    },
    count: (name) => commands.filter(([n]) => n?.toLowerCase() === name.toLowerCase()).length,
    swallowReplies: (on) => set("replies", on ? "drop" : "pass"),
    swallowRequests: (on) => set("requests", on ? "drop" : "pass"),
    holdRequests(ms) {
      set("requests", "hold");
      if (ms !== undefined) later(ms, releaseHeld);
    },
    holdReplies: () => set("replies", "hold"),
    releaseHeld,
    loseReplyOnce: (match, { resetAfterMs } = {}) =>
      new Promise((resolve) => {
        traps.add({
          match,
          spring(connection) {
            connection.loseReply(() => {
              if (resetAfterMs !== undefined) later(resetAfterMs, () => connection.reset());
              resolve();
            });
          },
        });
      }),
    holdRequestOnce: (match) =>
      new Promise((resolve) => {
        traps.add({
          match,
          spring(connection) {
            connection.requests.flow = "hold";
            resolve();
          },
        });
      }),
    resetAll() {
      for (const connection of open) connection.reset();
    },
    async refuse(on) {
      // close() reports back only when the last connection has ended, and those are to stay.
      if (on && server.listening) server.close();
      if (!on && !server.listening) await listen(port);
    },
    async stop() {
      for (const timer of timers) clearTimeout(timer);
      for (const connection of open) connection.close();
      if (!server.listening) return;
      server.close();
      await once(server, "close");
    },
  };
}
