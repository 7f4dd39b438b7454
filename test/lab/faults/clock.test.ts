import { spawnSync } from "node:child_process";
import { existsSync, mkdtempSync, readdirSync, renameSync, rmSync, writeFileSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { setTimeout as sleep } from "node:timers/promises";
import { afterAll, afterEach, beforeAll, describe, expect, inject, test } from "vitest";
import { RedisStore, type SubmitLock } from "../../../src/index.ts";
import { closeClients, everyRedisClient, untilReady } from "../../support/clients.ts";
import { command } from "../../support/command.ts";
import { freshUser } from "../../support/ids.ts";
import { closeLocks, leaseOf, openLock } from "../../support/locks.ts";
import { type RedisProxy, startProxy } from "../../support/proxy.ts";
import { installOnDebian } from "../../support/server-binary.ts";
import { type RedisServer, startServer } from "../../support/server-process.ts";
import { answer, submissionOf } from "../../support/submissions.ts";
import { until } from "../../support/until.ts";
import { Ledger, overlapping } from "../shop/ledger.ts";

const hour = 3_600;
const times = { ttlMs: 4_000, acquireTimeoutMs: 1_000, commandTimeoutMs: 200 };
/** What a busy machine takes on top. */
const slackMs = 4_000;

const faketime = faketimeLibrary() ?? "";
const isLeftOut = faketime === "" || !canBeStepped(inject("redisServerBinary"), faketime);
if (isLeftOut) {
  console.log("LEFT OUT: no server runs under libfaketime here, so none has its clock set back.");
}

describe.skipIf(isLeftOut).each(everyRedisClient)(
  "P3: a real Redis whose clock is set back, with $name",
  ({ connect }) => {
    let server: SteppedServer;
    let proxies: RedisProxy[] = [];
    beforeAll(async () => {
      server = await startStepped(inject("redisServerBinary"), faketime);
    });
    afterAll(() => server.stop());
    afterEach(async () => {
      void closeLocks();
      closeClients();
      for (const proxy of proxies) await proxy.stop();
      proxies = [];
      server.step(0);
    });

    async function openProcess(): Promise<{ lock: SubmitLock; proxy: RedisProxy }> {
      const proxy = await startProxy(server.port);
      proxies.push(proxy);
      const client = await untilReady(connect(proxy.port));
      return { lock: openLock({ store: new RedisStore(client), ...times }), proxy };
    }

    async function setBack(seconds: number): Promise<void> {
      const [before] = (await command(server.port, "TIME")) as [string];
      server.step(-seconds);
      await until(
        async () => {
          const [now] = (await command(server.port, "TIME")) as [string];
          return Number(now) < Number(before) - seconds / 2;
        },
        { what: "the clock of Redis to be set back" },
      );
    }

    /** How long another process takes to get the lock, from its first attempt on. */
    async function waitingMs(user: string): Promise<number> {
      const { lock } = await openProcess();
      const from = performance.now();
      const lease = await until(
        async () => {
          const attempt = await lock.acquire(user);
          return attempt.outcome === "acquired" && attempt.lease;
        },
        { what: "the user to be free", boundMs: 90_000, everyMs: 50 },
      );
      const tookMs = performance.now() - from;
      await lease.release();
      return tookMs;
    }

    test.each([5, hour])(
      "by %d s, keeps no user out for longer than a lock of a dead process lives",
      async (seconds) => {
        const { lock, proxy } = await openProcess();
        const user = freshUser();
        await leaseOf(lock, user);
        await proxy.refuse(true);
        proxy.resetAll();
        await setBack(seconds);
        expect(await waitingMs(user)).toBeLessThan(times.ttlMs + slackMs);
      },
    );

    test("while an order is under way, takes no lease from it and lets nobody in", async () => {
      const [holder, rival] = [await openProcess(), await openProcess()];
      const user = freshUser();
      const ledger = new Ledger();
      const lease = await leaseOf(holder.lock, user);
      const { ownerId, signal } = lease;
      const holding = ledger.begin({ holder: "order", user, ownerId, from: performance.now() });
      await setBack(hour);
      const endsAt = performance.now() + 2 * times.ttlMs;
      while (performance.now() < endsAt) {
        const attempt = await rival.lock.acquire(user);
        expect(attempt.outcome).not.toBe("acquired");
        expect(signal.aborted).toBe(false);
        await sleep(20);
      }
      ledger.end(holding, performance.now());
      expect(await lease.release()).toBe("released");
      expect(overlapping(ledger.holdings)).toEqual([]);
      expect(await waitingMs(user)).toBeLessThan(slackMs);
    });

    test.each(["release", "complete"] as const)(
      "before a %s, lets a cooldown of a second last for a minute at most",
      async (ending) => {
        const { lock } = await openProcess();
        const user = freshUser();
        const lease = await submissionOf(lock, user);
        await setBack(hour);
        const cooldown = { cooldownMs: 1_000 };
        const ended =
          ending === "release" ? lease.release(cooldown) : lease.complete(answer, cooldown);
        expect(["released", "recorded"]).toContain(await ended);
        const attempt = await lock.acquire(user);
        expect(attempt).toMatchObject({ outcome: "contended", isCooldown: true });
        expect(Number(await command(server.port, "PTTL", lease.key))).toBeLessThanOrEqual(60_000);
      },
    );
  },
);

/**
 * libfaketime, which gives a server a wall clock of its own; on Debian and Ubuntu as root it is
 * installed. `undefined` where there is none.
 */
function faketimeLibrary(): string | undefined {
  return library() ?? (installOnDebian("libfaketime") ? library() : undefined);
}

function library(): string | undefined {
  // Debian has a folder for each architecture.
  const folders = ["/usr/lib", "/usr/local/lib"].filter((folder) => existsSync(folder));
  return folders
    .flatMap((folder) => [folder, ...readdirSync(folder).map((name) => join(folder, name))])
    .map((folder) => join(folder, "faketime", "libfaketimeMT.so.1"))
    .find((file) => existsSync(file));
}

/** Whether the server starts under it: an allocator that looks at the clock at once may hang. */
function canBeStepped(binary: string, faketime: string): boolean {
  const env = { ...process.env, ...preloaded(faketime) };
  return spawnSync(binary, ["--version"], { env, stdio: "ignore", timeout: 10_000 }).status === 0;
}

/** The C library's own allocator in the place of jemalloc, which asks libfaketime before it is ready. */
function preloaded(faketime: string): NodeJS.ProcessEnv {
  return { LD_PRELOAD: `${faketime} libc.so.6` };
}

/** A server whose wall clock steps; its monotonic one goes on, as that of a real host. */
interface SteppedServer extends RedisServer {
  /** By how many seconds its wall clock is wrong from now on. */
  step(seconds: number): void;
}

async function startStepped(binary: string, faketime: string): Promise<SteppedServer> {
  const folder = mkdtempSync(join(tmpdir(), "submit-lock-clock-"));
  const file = join(folder, "offset");
  const step = (seconds: number) => {
    // It is read again at each look at the clock, so it must never be half written.
    writeFileSync(`${file}.next`, `${seconds < 0 ? "" : "+"}${seconds}s\n`);
    renameSync(`${file}.next`, file);
  };
  step(0);
  const env = {
    ...preloaded(faketime),
    FAKETIME_TIMESTAMP_FILE: file,
    FAKETIME_NO_CACHE: "1",
    FAKETIME_DONT_FAKE_MONOTONIC: "1",
    DONT_FAKE_MONOTONIC: "1",
  };
  const server = await startServer(binary, { env });
  return {
    ...server,
    pid: server.pid,
    step,
    async stop() {
      await server.stop();
      rmSync(folder, { recursive: true, force: true });
    },
  };
}
