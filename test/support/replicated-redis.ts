import { type KeyObserver, observer } from "./observer.ts";
import { type RedisServer, startRedis } from "./redis-server.ts";
import { until } from "./until.ts";

/** A master and its replicas, and what an observer of each sees. */
export interface ReplicatedRedis {
  readonly master: RedisServer;
  readonly replicas: readonly RedisServer[];
  readonly redis: KeyObserver;
  readonly copy: KeyObserver;
  /** Resolves when the first replica has confirmed every write so far, and the master knows it. */
  inStep(): Promise<void>;
  stop(): Promise<void>;
}

/** Resolves when every replica is in step. */
export async function startReplicated(replicas = 1): Promise<ReplicatedRedis> {
  const args = ["--repl-diskless-sync-delay", "0", "--repl-ping-replica-period", "1"];
  const master = await startRedis({ args });
  const others = await Promise.all(
    Array.from({ length: replicas }, () =>
      startRedis({ args: [...args, "--replicaof", `127.0.0.1 ${master.port}`] }),
    ),
  );
  const redis = observer(master.port);
  const online = async () => {
    const info = String(await redis.send("INFO", "replication"));
    return (info.match(/state=online/g)?.length ?? 0) === replicas;
  };
  await until(online, { what: "the replicas to be in step", boundMs: 30_000, everyMs: 20 });
  return {
    master,
    replicas: others,
    redis,
    copy: observer(others[0]?.port ?? master.port),
    async inStep() {
      const info = async () => String(await redis.send("INFO", "replication"));
      const written = Number(/master_repl_offset:(\d+)/.exec(await info())?.[1]);
      const isConfirmed = async () =>
        Number(/state=online,offset=(\d+)/.exec(await info())?.[1]) >= written;
      await until(isConfirmed, { what: "a replica to confirm", everyMs: 20 });
    },
    async stop() {
      await Promise.all([...others, master].map((server) => server.stop()));
    },
  };
}
