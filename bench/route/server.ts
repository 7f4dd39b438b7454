import { once } from "node:events";
import { createServer } from "node:http";
import type { AddressInfo } from "node:net";
import { Redis } from "ioredis";
import { beginProfile, ownShare } from "../process/own-share.ts";
import { serveJobs } from "../process/serve.ts";
import { expressApp } from "./express-app.ts";
import { koaApp } from "./koa-app.ts";
import type { ServerHello, ServerJob } from "./processes.ts";
import type { Variant } from "./variants.ts";

/** One route in a process of its own. Arguments: framework, variant, the port of Redis. */
const [framework, variant, redisPort] = process.argv.slice(2);
const redis = new Redis(Number(redisPort), "127.0.0.1");
await redis.ping();
const app = framework === "Koa" ? koaApp : expressApp;
const server = createServer(app(variant as Variant, redis)).listen(0, "127.0.0.1");
await once(server, "listening");

let cpu = process.cpuUsage();
serveJobs<ServerJob, number, ServerHello>(
  { port: (server.address() as AddressInfo).port },
  async ({ kind }) => {
    if (kind === "own-share") return ownShare();
    if (kind === "profile") await beginProfile();
    const { user, system } = process.cpuUsage(cpu);
    cpu = process.cpuUsage();
    return user + system;
  },
);
