import { execFile } from "node:child_process";
import { once } from "node:events";
import { existsSync } from "node:fs";
import { createServer } from "node:net";
import { promisify } from "node:util";
import { afterEach, expect, inject, test } from "vitest";
import { command } from "./command.ts";
import { freePort } from "./free-port.ts";
import { freshUser } from "./ids.ts";
import { answersPing } from "./ping.ts";
import { type RedisServer, sharedRedisPort, startRedis } from "./redis-server.ts";
import { until } from "./until.ts";

const servers: RedisServer[] = [];
async function start(...args: Parameters<typeof startRedis>): Promise<RedisServer> {
  const server = await startRedis(...args);
  servers.push(server);
  return server;
}
afterEach(async () => {
  await Promise.all(servers.splice(0).map((server) => server.stop()));
});

test("the shared server answers", async () => {
  expect(await command(sharedRedisPort(), "PING")).toBe("PONG");
});

test("a server that was started answers and stores", async () => {
  const server = await start({ args: ["--maxmemory", "64mb"] });
  const key = freshUser();
  await command(server.port, "SET", key, "1");
  expect(await command(server.port, "GET", key)).toBe("1");
  expect(await command(server.port, "CONFIG", "GET", "maxmemory")).toContain("67108864");
});

test("a server that was stopped is gone, with its folder", async () => {
  const server = await start();
  const dir = ((await command(server.port, "CONFIG", "GET", "dir")) as string[])[1] as string;
  await server.stop();
  expect(await answersPing(server.port)).toBe(false);
  expect(existsSync(dir)).toBe(false);
});

test("a server that was killed comes back empty on the same port", async () => {
  const server = await start();
  const key = freshUser();
  await command(server.port, "SET", key, "1");
  const { pid } = server;
  await server.kill();
  expect(await answersPing(server.port)).toBe(false);
  await server.restart();
  expect(server.pid).not.toBe(pid);
  expect(await command(server.port, "EXISTS", key)).toBe(0);
});

test("a paused server is silent until it is resumed", async () => {
  const server = await start();
  server.pause();
  expect(await answersPing(server.port)).toBe(false);
  server.resume();
  expect(await answersPing(server.port)).toBe(true);
});

test("a paused server can be stopped", async () => {
  const server = await start();
  server.pause();
  await server.stop();
  expect(await answersPing(server.port)).toBe(false);
});

test("a given port that is taken is an error", async () => {
  const port = await freePort();
  const squatter = createServer().listen(port, "127.0.0.1");
  await once(squatter, "listening");
  await expect(start({ port })).rejects.toThrow("in use");
  squatter.close();
});

test("an argument that the server refuses is an error with the server's own words", async () => {
  await expect(start({ args: ["--no-such-option", "1"] })).rejects.toThrow("no-such-option");
});

test("a server does not outlive a test process that exits without stopping it", async () => {
  const code = `
    const { startServer } = await import(${JSON.stringify(new URL("./server-process.ts", import.meta.url).href)});
    const server = await startServer(process.argv[1]);
    console.log(server.port);
    process.exit();`;
  const argv = ["--import", "tsx", "--input-type=module", "-e", code, inject("redisServerBinary")];
  const { stdout } = await promisify(execFile)(process.execPath, argv);
  const port = Number(stdout);
  await until(async () => !(await answersPing(port)), { what: "the server to be gone" });
  expect(port).toBeGreaterThan(0);
});

test("many servers started at once each have a port of their own", async () => {
  const many = await Promise.all(Array.from({ length: 8 }, () => start()));
  expect(new Set(many.map(({ port }) => port)).size).toBe(8);
});
