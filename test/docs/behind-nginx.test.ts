import { mkdtempSync, rmSync, writeFileSync } from "node:fs";
import { createServer } from "node:http";
import { tmpdir } from "node:os";
import { join } from "node:path";
import express from "express";
import { describe, expect, onTestFinished, test } from "vitest";
import { submitGuard } from "../../src/express/index.ts";
import { RedisStore } from "../../src/index.ts";
import { gate } from "../http/gate.ts";
import { listen } from "../http/http-client.ts";
import { Program } from "../support/child.ts";
import { closeClients, ioredis6 } from "../support/clients.ts";
import { freePort } from "../support/free-port.ts";
import { closeLocks, openLock } from "../support/locks.ts";
import { forTest, startRedis } from "../support/redis-server.ts";
import { hasProgram } from "../support/server-binary.ts";
import { until } from "../support/until.ts";
import { page } from "./page.ts";

/** What a shop may have for all its pages, and must not have for its orders. */
const forPages = `
  proxy_next_upstream error timeout http_503 non_idempotent;
  proxy_intercept_errors on;
  error_page 409 503 =200 /sorry;`;

const location = page("docs/operations/deploying.md").blockUnder("Behind a proxy", "nginx");

/** An nginx in front of the shops on these ports, with the `location` of the manual. */
async function startNginx(ports: readonly number[], orders: string, ofShop = ""): Promise<string> {
  const folder = mkdtempSync(join(tmpdir(), "submit-lock-nginx-"));
  const port = await freePort();
  const shops = ports.map((each) => `server 127.0.0.1:${each} ${ofShop};`).join(" ");
  const bodies = ["client_body", "proxy", "fastcgi", "uwsgi", "scgi"];
  writeFileSync(
    join(folder, "nginx.conf"),
    `daemon off;
pid ${folder}/pid;
events {}
http {
  access_log off;
  ${bodies.map((each) => `${each}_temp_path ${folder}/${each};`).join("\n  ")}
  upstream shop { ${shops} }
  server {
    listen 127.0.0.1:${port};${forPages}
    location / { proxy_pass http://shop; }
    location = /sorry { return 200 sorry; }
    ${orders}
  }
}`,
  );
  const args = ["-p", folder, "-c", "nginx.conf", "-e", "stderr"];
  const nginx = new Program("nginx", args, { endedBy: "SIGTERM" });
  onTestFinished(async () => {
    nginx.kill("SIGTERM");
    await nginx.ended;
    rmSync(folder, { recursive: true, force: true });
  });
  const url = `http://127.0.0.1:${port}`;
  const isUp = () =>
    fetch(url).then(
      ({ ok }) => ok,
      () => false,
    );
  await nginx.until(isUp, "to answer", 30_000);
  return url;
}

/** Two servers of one shop, whose orders end when the test says so. */
async function startShop() {
  const redis = await forTest(startRedis());
  const mayEnd = gate();
  let orders = 0;
  /** Which servers were asked for an order. */
  const asked = new Set<string>();
  const start = async (name: string) => {
    const lock = openLock({ store: new RedisStore(ioredis6.connect(redis.port)) });
    await lock.check();
    const app = express();
    app.get("/", (_req, res) => void res.send("Welcome"));
    const guard = submitGuard({ lock, userId: () => "42", idempotency: {} });
    const place = guard.protect(async (_req, res) => {
      const order = ++orders;
      await mayEnd.opened;
      res.status(201).json({ order });
    });
    app.use("/orders", (_req, _res, next) => {
      asked.add(name);
      next();
    });
    app.post("/orders", place);
    const server = createServer(app);
    onTestFinished(() => void server.close());
    return listen(server);
  };
  onTestFinished(async () => {
    await closeLocks();
    closeClients();
  });
  const ports = [await start("one"), await start("two")];
  return { asked, count: () => orders, end: mayEnd.open, ports, redis };
}

async function click(url: string) {
  const answer = await fetch(`${url}/orders`, {
    method: "POST",
    headers: { "idempotency-key": "7" },
  });
  const { headers, status } = answer;
  return { status, code: headers.get("submit-lock-code"), body: await answer.text() };
}

describe.skipIf(!hasProgram("nginx"))("behind nginx, as the manual has it", () => {
  test("a POST that is repeated on the other server is one order, and its answer comes whole", async () => {
    const { asked, count, end, ports } = await startShop();
    const impatient = location.replace("60s", "1s");
    expect(impatient).not.toBe(location);
    // Or nginx would take both for dead, and ask neither for 10 s.
    const url = await startNginx(ports, impatient, "max_fails=0");
    // The second server refuses it, or nginx gives up both.
    expect([409, 504]).toContain((await click(url)).status);
    expect([...asked].sort()).toEqual(["one", "two"]);
    end();
    const placed = async () => {
      const answer = await click(url);
      return answer.status === 201 && answer;
    };
    const { body } = await until(placed, { what: "the order's answer", boundMs: 60_000 });
    expect([body, count()]).toEqual(['{"order":1}', 1]);
  });

  test("a refused order is a 503 with its code, and takes no server away", async () => {
    const { count, ports, redis } = await startShop();
    const url = await startNginx(ports, location);
    redis.pause();
    for (let i = 0; i < 2; i++) {
      expect(await click(url)).toMatchObject({ status: 503, code: "submit_unavailable" });
      expect(await (await fetch(url)).text()).toBe("Welcome");
    }
    redis.resume();
    expect(count()).toBe(0);
  });
});
