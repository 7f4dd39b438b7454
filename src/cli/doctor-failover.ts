import type { SentinelFacts, ServerFacts, Times } from "./doctor-facts.ts";
import { duration } from "./durations.ts";
import type { Finding } from "./finding.ts";

/** Whether a Cluster serves every user, and how long a failover takes. */
export function clusterFindings(server: ServerFacts, { ttlMs }: Times): Finding[] {
  const { isClusterNode, cluster, nodeTimeoutMs } = server;
  if (!isClusterNode) return [];
  const findings: Finding[] = [];
  if (cluster === undefined) {
    findings.push({
      level: "unknown",
      check: "cluster",
      text: "state of the Cluster: not permitted (+cluster|info)",
    });
  } else if (cluster["cluster_state"] !== "ok") {
    findings.push({
      level: "fail",
      check: "cluster",
      text: `cluster_state is ${cluster["cluster_state"]}: ${cluster["cluster_slots_ok"]} of 16384 slots are served, and the users of the others cannot order`,
      remedy:
        "CLUSTER NODES tells which master is gone. Do not start one without persistence before a replica has taken over: it comes back empty",
    });
  }
  if (nodeTimeoutMs === undefined) {
    findings.push({
      level: "unknown",
      check: "node-timeout",
      text: "cluster-node-timeout: not permitted (+config|get)",
    });
  } else if (nodeTimeoutMs > ttlMs) {
    findings.push({
      level: "warn",
      check: "node-timeout",
      text: `cluster-node-timeout ${duration(nodeTimeoutMs)} is longer than ttlMs, ${duration(ttlMs)}: every order under way at a failover loses its lease`,
      remedy: "CONFIG SET cluster-node-timeout 5000",
    });
  }
  return findings;
}

/** The same of the Sentinels. */
export function sentinelFindings(
  { address, downAfterMs, quorum, failure }: SentinelFacts,
  { ttlMs }: Times,
): Finding[] {
  const check = "sentinel";
  if (failure !== undefined)
    return [{ level: "unknown", check, text: `Sentinel ${address}: ${failure}` }];
  const findings: Finding[] = [];
  if (quorum !== undefined && !quorum.startsWith("OK")) {
    findings.push({
      level: "fail",
      check: "quorum",
      text: `Sentinel ${address}: ${quorum}. Nobody takes over when the master is gone`,
      remedy: "start the Sentinels that are missing",
    });
  }
  if (downAfterMs !== undefined && downAfterMs > ttlMs) {
    findings.push({
      level: "warn",
      check: "down-after",
      text: `Sentinel ${address}: down-after-milliseconds ${duration(downAfterMs)} is longer than ttlMs, ${duration(ttlMs)}: every order under way at a failover loses its lease`,
      remedy: "SENTINEL SET <master> down-after-milliseconds 5000",
    });
  }
  return findings;
}
