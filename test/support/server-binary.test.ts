import { symlinkSync } from "node:fs";
import { mkdtemp, rm } from "node:fs/promises";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { afterAll, beforeAll, expect, inject, test } from "vitest";
import { serverBinary, serverVersion } from "./server-binary.ts";

const real = inject("redisServerBinary");
const neverInstall = (): void => {
  throw new Error("nothing may be installed here");
};
let folder: string;

beforeAll(async () => {
  folder = await mkdtemp(join(tmpdir(), "submit-lock-path-"));
});
afterAll(() => rm(folder, { recursive: true, force: true }));

test("the server in use tells its version", () => {
  expect(serverVersion(real)).toMatch(/server v=\d+\.\d+/);
});

test("REDIS_SERVER_BIN comes before the PATH", () => {
  const env = { REDIS_SERVER_BIN: real, PATH: folder };
  expect(serverBinary(env, neverInstall)).toBe(real);
});

test("a REDIS_SERVER_BIN that does not exist is an error, whatever the PATH offers", () => {
  const env = { REDIS_SERVER_BIN: "/no/such/server", PATH: process.env["PATH"] };
  expect(() => serverBinary(env, neverInstall)).toThrow(
    "REDIS_SERVER_BIN names /no/such/server as the Redis server, and there is no such file.",
  );
});

test("a REDIS_SERVER_BIN that is no Redis server is an error", () => {
  const env = { REDIS_SERVER_BIN: process.execPath };
  expect(() => serverBinary(env, neverInstall)).toThrow("does not answer like one");
});

test("a server that the installation brought is found", () => {
  const install = (): void => symlinkSync(real, join(folder, "redis-server"));
  expect(serverBinary({ PATH: folder }, install)).toBe(join(folder, "redis-server"));
});

test("an installation that brings no server ends with advice for every platform", () => {
  expect(() => serverBinary({ PATH: "/no/such/folder" }, () => {})).toThrow(
    /brew install redis.*apt-get install redis-server.*WSL.*REDIS_SERVER_BIN/s,
  );
});
