import type { Info } from "./doctor-facts.ts";
import type { Finding } from "./finding.ts";

const ownRedis =
  "a Redis of its own for the lock; or CONFIG SET maxmemory-policy noeviction, with which a shared cache that is full refuses all writes";

/** Whether a lock can be evicted, or refused for want of memory. */
export function memoryFindings(info: Info): Finding[] {
  const { maxmemory = "0", maxmemory_policy: policy = "?", used_memory: used = "0" } = info;
  const check = "eviction";
  const limit = Number(maxmemory);
  if (policy !== "noeviction" && limit > 0) {
    const text = `maxmemory-policy is ${policy}: under memory pressure it evicts ${victims(policy)}${evicted(info)}`;
    return [{ level: "fail", check, text, remedy: ownRedis }];
  }
  const findings: Finding[] = [
    {
      level: "ok",
      check,
      text:
        policy === "noeviction"
          ? "maxmemory-policy noeviction"
          : `maxmemory-policy ${policy}, and no maxmemory: nothing is evicted`,
    },
  ];
  if (limit > 0 && Number(used) > 0.9 * limit) {
    findings.push({
      level: "warn",
      check: "memory",
      text: `${Math.round((100 * Number(used)) / limit)} % of maxmemory are used: a full Redis refuses every lock`,
      remedy: "a larger maxmemory",
    });
  }
  return findings;
}

function victims(policy: string): string {
  if (policy === "volatile-ttl") return "the keys that expire soonest, and those are the locks";
  if (policy.startsWith("volatile-")) return "keys that have an expiry, and every lock has one";
  return "any key, locks among them";
}

function evicted({ evicted_keys: keys = "0" }: Info): string {
  return keys === "0" ? "" : `. ${keys} keys were evicted since the start`;
}

/** Whether a restart lets go of locks, or a failed write to the disk refuses them. */
export function persistenceFindings(info: Info): Finding[] {
  const findings: Finding[] = [];
  const check = "persistence";
  if (info["aof_enabled"] === "1") findings.push({ level: "ok", check, text: "appendonly yes" });
  else {
    findings.push({
      level: "warn",
      check,
      text: "appendonly no: a restart lets go of every lock that is held, and forgets every record",
      remedy: "CONFIG SET appendonly yes, and the same in redis.conf",
    });
  }
  const failed = [
    info["aof_enabled"] === "1" && info["aof_last_write_status"] === "err"
      ? "append-only file"
      : "",
    info["rdb_last_bgsave_status"] === "err" ? "snapshot" : "",
  ].filter((what) => what !== "");
  for (const what of failed) {
    findings.push({
      level: "fail",
      check: "disk",
      text: `the last write of the ${what} failed: Redis refuses every lock until it succeeds`,
      remedy: "room on the disk, and rights on the folder; the server's log says which",
    });
  }
  return findings;
}
