import { describe, expect, test } from "vitest";
import type { Report } from "../../../src/cli/doctor.ts";
import {
  examined,
  type Facts,
  type Info,
  right,
  rightFacts,
  rightServer,
  type ServerFacts,
} from "./fakes.ts";

async function reportOn(facts: Partial<Facts>): Promise<Report> {
  const [line = ""] = await examined({ ...rightFacts, ...facts }, undefined, "--json");
  return JSON.parse(line);
}

/** Everything but what is right, as `level check`. */
async function found(facts: Partial<Facts>): Promise<string[]> {
  const { servers, findings } = await reportOn(facts);
  return [...servers.flatMap((server) => server.findings), ...findings]
    .filter(({ level }) => level !== "ok")
    .map(({ level, check }) => `${level} ${check}`);
}

const server = (more: Partial<ServerFacts>) => ({ servers: [{ ...rightServer, ...more }] });
const info = (more: Info) => server({ info: { ...right, ...more } });
/** What CLUSTER NODES says; a peer's slots that move are the peer's to tell. */
const nodesWith = (slots: string) =>
  `a1 10.0.0.2:6379@16379 master - 0 1 2 connected 1 [7->-b2]\nb2 10.0.0.1:6379@16379 myself,master - 0 0 1 connected ${slots}\n`;
const clusterNode = (more: Partial<ServerFacts>) =>
  server({
    isClusterNode: true,
    cluster: { cluster_state: "ok", cluster_slots_ok: "16384" },
    nodeTimeoutMs: 5_000,
    clusterNodes: nodesWith("0-16383"),
    ...more,
  });

const rows: [what: string, facts: Partial<Facts>, expected: string[]][] = [
  ["a right server", {}, []],
  ["Redis 8", info({ redis_version: "8.0.1" }), []],
  ["Valkey", info({ redis_version: "7.2.4", valkey_version: "8.1.0" }), []],
  ["cluster mode, with a client for one server", info({ redis_mode: "cluster" }), ["warn sharing"]],
  [
    "cluster mode in the words of Valkey 9.1",
    info({ redis_mode: undefined, server_mode: "cluster", valkey_version: "9.1.0" }),
    ["warn sharing"],
  ],
  [
    "allkeys-lru with maxmemory",
    info({ maxmemory_policy: "allkeys-lru", maxmemory: "9000000" }),
    ["fail eviction"],
  ],
  ["allkeys-lru without maxmemory", info({ maxmemory_policy: "allkeys-lru" }), ["warn eviction"]],
  ["noeviction with maxmemory", info({ maxmemory: "2000000" }), []],
  ["appendonly no", info({ aof_enabled: "0" }), ["warn persistence"]],
  [
    "nothing kept, and records that prevent second orders",
    { ...server({ info: { ...right, aof_enabled: "0" }, save: "" }), hasRecords: true },
    ["fail persistence"],
  ],
  [
    "nothing kept, and no records",
    server({ info: { ...right, aof_enabled: "0" }, save: "" }),
    ["warn persistence"],
  ],
  [
    "snapshots alone, and records",
    { ...server({ info: { ...right, aof_enabled: "0" }, save: "3600 1" }), hasRecords: true },
    ["warn persistence"],
  ],
  ["a failed append", info({ aof_last_write_status: "err" }), ["fail disk"]],
  ["a failed snapshot", info({ rdb_last_bgsave_status: "err" }), ["fail disk"]],
  [
    "a failed snapshot of a person, which refuses nothing",
    server({ info: { ...right, rdb_last_bgsave_status: "err" }, save: "" }),
    [],
  ],
  ["replicas and no min-replicas-to-write", info({ connected_slaves: "1" }), ["warn min-replicas"]],
  [
    "replicas that are waited for",
    info({ connected_slaves: "1", min_slaves_good_slaves: "1" }),
    [],
  ],
  ["a replica", info({ role: "slave", master_host: "m", master_port: "1" }), ["fail role"]],
  ["no INFO", server({ info: undefined }), ["unknown info"]],
  ["a right Cluster", clusterNode({}), []],
  ["a Cluster that takes a minute", clusterNode({ nodeTimeoutMs: 60_000 }), ["warn node-timeout"]],
  [
    "a Cluster that is half down",
    clusterNode({ cluster: { cluster_state: "fail" } }),
    ["fail cluster"],
  ],
  [
    "a Cluster that serves a part of its slots",
    clusterNode({ cluster: { cluster_state: "ok", cluster_slots_ok: "10923" } }),
    ["fail cluster"],
  ],
  [
    "a slot that is moved away, and six that come",
    clusterNode({
      clusterNodes: nodesWith(
        "0-16383 [866->-a1] [1-<-a1] [2-<-a1] [3-<-a1] [4-<-a1] [5-<-a1] [6-<-a1]",
      ),
    }),
    ["warn moving"],
  ],
  ["a master that is gone", clusterNode({ failure: "no answer" }), ["fail reach"]],
  [
    "a Cluster that may not be asked",
    clusterNode({ cluster: undefined, clusterNodes: undefined, nodeTimeoutMs: undefined }),
    ["unknown cluster", "unknown moving", "unknown node-timeout"],
  ],
  ["a lock that cannot work", { check: { tookMs: 0, failure: "no" } }, ["fail commands"]],
  ["no SCAN", { prefixes: undefined }, ["unknown keys"]],
  [
    "another lock's keys",
    { prefixes: [{ keyPrefix: "a:", foreign: 2, endless: 1, setBack: 0, isComplete: true }] },
    ["warn keys"],
  ],
  [
    "keys of no user id",
    {
      prefixes: [
        { keyPrefix: "a:", foreign: 0, endless: 0, setBack: 0, isComplete: true, strange: 2 },
      ],
    },
    ["warn other-keys"],
  ],
  [
    "a clock of Redis that was set back",
    { prefixes: [{ keyPrefix: "a:", foreign: 0, endless: 0, setBack: 2, isComplete: true }] },
    ["warn clock-set-back"],
  ],
  [
    "more keys than the budget",
    { prefixes: [{ keyPrefix: "a:", foreign: 0, endless: 0, setBack: 0, isComplete: false }] },
    ["unknown keys"],
  ],
];

describe("doctor", () => {
  test.each(rows)("finds exactly what is wrong with %s", async (_what, facts, expected) => {
    expect(await found(facts)).toEqual(expected);
  });

  test.each([
    [
      "fail",
      "cluster_state of this node is fail (10923 of 16384 slots are served): it refuses every lock",
    ],
    ["ok", "this node sees 10923 of 16384 slots served: the users of the others cannot order"],
  ])(
    "says who cannot order on a Cluster with lost slots: cluster_state %s",
    async (state, text) => {
      const cluster = { cluster_state: state, cluster_slots_ok: "10923" };
      const { servers } = await reportOn(clusterNode({ cluster }));
      const findings = servers.flatMap((each) => each.findings);
      expect(findings).toContainEqual(
        expect.objectContaining({ level: "fail", check: "cluster", text }),
      );
    },
  );

  test("names the first slots that are being moved", async () => {
    const slots = [866, 1, 2, 3, 4, 5].map((slot) => `[${slot}->-a1]`).join(" ");
    const { servers } = await reportOn(clusterNode({ clusterNodes: nodesWith(slots) }));
    const text = expect.stringContaining("6 slots (866, 1, 2, 3, 4, …) from or to this node");
    expect(servers[0]?.findings).toContainEqual(expect.objectContaining({ level: "warn", text }));
  });

  test("advises +scan only to a user who lacks it", async () => {
    const textOf = async (facts: Partial<Facts>) =>
      (await reportOn(facts)).findings.find(({ check }) => check === "keys")?.text;
    expect(await textOf({ prefixes: undefined })).toContain("ACL SETUSER default +scan");
    // Valkey 9.1 permits a user databases, too.
    const scanFailure = "NOPERM No permissions to access database";
    expect(await textOf({ scanFailure })).toBe(
      `the keys under lock:submit: were not looked at: ${scanFailure}`,
    );
  });

  test("names a node that is silent", async () => {
    const { servers } = await reportOn(clusterNode({ failure: "silence" }));
    const text =
      "no answer from redis-1:6379 within 2 s. Can this host reach it, is Redis stopped or busy, and does the address say rediss:// exactly where Redis uses TLS?";
    expect(servers[0]?.findings).toContainEqual(expect.objectContaining({ text }));
  });

  test("prints a line for each finding, its remedy below it, and the sum", async () => {
    const given = { ...right, maxmemory: "100000000", maxmemory_policy: "volatile-ttl" };
    const info = { ...given, evicted_keys: "1204", aof_enabled: "0" };
    const facts = { ...rightFacts, servers: [{ ...rightServer, info }] };
    const lines = await examined({ ...facts, prefixes: undefined }, "checkout");
    expect(lines[0]).toBe(
      "redis-1:6379, Redis 7.0.15, standalone, master, 0 replicas, as user checkout",
    );
    expect(lines.slice(1).map((line) => line.slice(0, 8))).toEqual([
      ...["  FAIL  ", "        ", "  warn  ", "        ", "  ok    ", "  ok    ", "  ?     "],
      ...["CONFIG S", "1 failur"],
    ]);
    expect(lines[1]).toContain("volatile-ttl");
    expect(lines[1]).toContain("1204 keys");
    expect(lines[7]).toContain("+scan");
  });

  test("says by its consequence that nothing is kept", async () => {
    const nothing = { info: { ...right, aof_enabled: "0" }, save: "" };
    const { servers } = await reportOn({ ...server(nothing), hasRecords: true });
    const [found] = servers
      .flatMap(({ findings }) => findings)
      .filter(({ level }) => level === "fail");
    expect(found?.text).toContain(
      "a restart loses every lock and record. An order that a customer",
    );
    expect(found?.remedy).toContain("--appendonly yes where the server is started");
  });

  test("suggests commands that look at the same keys", async () => {
    const keys = { keyPrefix: "b:", foreign: 1, endless: 0, setBack: 0, isComplete: true };
    const given = ["--prefix", "a:", "--prefix", "b:", "--url", "redis://h:7/5"];
    const lines = await examined({ ...rightFacts, prefixes: [keys] }, undefined, ...given);
    expect(lines.join("\n")).toContain(
      "→ npx --no-install submit-lock list --state foreign --prefix b: --url redis://h:7/5\n",
    );
  });

  test("names a remedy for whatever is wrong with a server", async () => {
    for (const [, facts] of rows) {
      const { servers } = await reportOn(facts);
      for (const { level, remedy, text } of servers.flatMap(({ findings }) => findings)) {
        if (level === "fail" || level === "warn") expect(remedy, text).toBeDefined();
      }
    }
  });
});
