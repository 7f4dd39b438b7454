import { setTimeout as sleep } from "node:timers/promises";
import { until } from "../../support/until.ts";
import { becomeReplica, type Fault, fill, refusalMs, send } from "./fault.ts";

/** ioredis goes on in database 0 where its SELECT was refused. */
const elsewhere: Pick<Fault, "ownServer" | "db" | "login" | "prepare" | "strike"> = {
  ownServer: true,
  db: 5,
  login: { username: "shop", password: "shop" },
  prepare: (target) => send(target, "ACL", "SETUSER", "shop", "on", ">shop", "~*", "&*", "+@all"),
  async strike(target) {
    await send(target, "ACL", "SETUSER", "shop", "-select");
    const before = target.proxy.count("select");
    target.proxy.resetAll();
    await until(() => target.proxy.count("select") > before, { what: "the client to select" });
    // The rest of its handshake.
    await sleep(200);
    target.later(refusalMs, () => send(target, "ACL", "SETUSER", "shop", "+select"));
  },
};

/** The server says that it does not execute the acquire. */
export const refusals: Fault[] = [
  {
    name: "F9 READONLY",
    what: "the server is a replica for 0.8 s",
    on: "acquire",
    expect: "refused",
    says: "READONLY",
    ownServer: true,
    strike: (target) => becomeReplica(target, "yes"),
    watchMs: 2_000,
  },
  {
    name: "F9 LOADING",
    what: "the server reads its data in for 0.8 s",
    on: "acquire",
    expect: "refused",
    says: "LOADING",
    ownServer: true,
    // 0.4 ms for each of the keys, and an ear for clients after each kilobyte.
    serverArgs: [
      ...["--enable-debug-command", "yes", "--key-load-delay", "400"],
      ...["--loading-process-events-interval-bytes", "1024"],
    ],
    prepare: (target) => send(target, "DEBUG", "POPULATE", 2_000, "ballast", 600),
    async strike(target) {
      const loaded = send(target, "DEBUG", "RELOAD").catch(() => {});
      target.later(0, () => loaded);
      const isLoading = async () =>
        String(await send(target, "INFO", "persistence")).includes("loading:1");
      await until(isLoading, { what: "the server to be loading" });
    },
    watchMs: 2_500,
  },
  {
    name: "F9 OOM",
    what: "the server is at its maxmemory for 0.8 s",
    on: "acquire",
    expect: "refused",
    says: "OOM",
    ownServer: true,
    strike: fill,
    watchMs: 2_000,
  },
  {
    name: "F9 NOPERM",
    what: "the user may not write for 0.8 s",
    on: "acquire",
    expect: "refused",
    says: "NOPERM",
    ownServer: true,
    login: { username: "shop", password: "shop" },
    prepare: (target) => send(target, "ACL", "SETUSER", "shop", "on", ">shop", "~*", "&*", "+@all"),
    async strike(target) {
      const may = (...rules: string[]) => send(target, "ACL", "SETUSER", "shop", ...rules);
      await may("-@scripting", "-@write");
      target.later(refusalMs, () => may("+@all"));
    },
    watchMs: 2_000,
  },
  {
    name: "F9 MASTERDOWN",
    what: "the server is a replica without its master for 0.8 s",
    on: "acquire",
    expect: "refused",
    says: "MASTERDOWN",
    ownServer: true,
    strike: (target) => becomeReplica(target, "no"),
    watchMs: 2_000,
  },
  {
    name: "F10 acquire",
    what: "a connection to database 5 comes up in database 0, because SELECT is refused for 0.8 s",
    on: "acquire",
    expect: "refused",
    says: "NOPERM",
    ...elsewhere,
    watchMs: 3_000,
  },
  {
    name: "F10 extend",
    what: "the same, under an order",
    on: "extend",
    expect: "released",
    ...elsewhere,
    watchMs: 3_000,
    // Longer than the TTL, so that the lease lives on only if it was extended.
    holdMs: 6_500,
  },
];
