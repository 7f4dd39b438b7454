import { execFile } from "node:child_process";
import { randomUUID } from "node:crypto";
import { once } from "node:events";
import { copyFile, mkdir, rename, writeFile } from "node:fs/promises";
import { connect } from "node:net";
import { join, resolve } from "node:path";
import { promisify } from "node:util";
import { afterAll, beforeAll, describe, expect, test, vi } from "vitest";
import { page } from "../../docs/page.ts";
import { Consumers, ownVersions, type Project } from "../../package/consumer-project.ts";
import { isAcquire } from "../../redis/fixture.ts";
import { command as sendCommand } from "../../support/command.ts";
import { freshUser } from "../../support/ids.ts";
import { type RedisProxy, startProxy } from "../../support/proxy.ts";
import { sharedRedisPort } from "../../support/redis-server.ts";
import { until } from "../../support/until.ts";
import { Shop } from "../sequences/shop.ts";
import {
  type Bank,
  type Command,
  clickTwice,
  expectEndedByOrder,
  expectHeldUntilDone,
  expectHeldWhileRead,
  expectOneOrder,
  type ShopProcess,
  untilFree,
  withShop,
} from "./recipe.ts";

const BUN = { version: "1.4.5", program: "node_modules/bun/bin/bun.exe" };

let consumers: Consumers;
beforeAll(async () => {
  consumers = await Consumers.pack();
});
afterAll(() => consumers?.remove());

describe("esbuild", () => {
  let project: Project;
  let outside: string;
  beforeAll(async () => {
    const packages = { ...ownVersions("express", "ioredis"), esbuild: "0.28.2" };
    project = await consumers.installRecipe(["shop", "esbuild"], { type: "module", packages });
    await project.node(["build.js"]);
    // Where no `node_modules` is found: what runs there is the bundle and nothing else.
    outside = join(project.folder, "../bundles");
    await mkdir(outside);
    for (const file of ["shop.mjs", "shop.cjs", "shop.min.cjs"]) {
      await rename(join(project.folder, "out", file), join(outside, file));
    }
  });

  test.each(["shop.mjs", "shop.cjs", "shop.min.cjs"])(
    "the bundle %s places one order of two clicks",
    (file) =>
      withShop({ program: process.execPath, args: [file], folder: outside }, expectOneOrder),
  );

  test("a bundle in an ES module needs the banner", async () => {
    const bare = project.node(["out/shop.bare.mjs"]);
    await expect(bare).rejects.toThrow(/Dynamic require of "[\w:]+" is not supported/);
  });
});

describe("form", () => {
  let project: Project;
  beforeAll(async () => {
    // A session store's client: beside it, npm must not refuse to install this package.
    const packages = { ...ownVersions("express", "express-session", "ioredis"), redis: "5.9.0" };
    project = await consumers.installRecipe(["form"], { type: "module", packages });
  });

  test("a form of a session is submitted once, however it is clicked", async () => {
    const command = { program: process.execPath, args: ["shop.js"], folder: project.folder };
    await withShop(command, async ({ url }, bank) => {
      const browser = new Browser(url);
      await browser.post("/sign-in", { user: freshUser() });

      // A double click: both requests are sent to the same order.
      const submission = await browser.token();
      const submit = () => browser.post("/orders", { submission });
      bank.hold();
      const clicks = [submit(), submit()];
      await until(() => bank.charges > 0, { what: "the charge" });
      bank.release();
      for (const answer of await Promise.all(clicks))
        expect(redirect(answer)).toBe("303 /orders/1");

      // The back button and another click.
      const late = await submit();
      expect(redirect(late)).toBe("303 /orders/1");
      expect(late.headers.get("idempotent-replayed")).toBe("true");
      expect(bank.charges).toBe(1);
      // The session was saved by the first answer.
      const order = await (await browser.get("/orders/1")).text();
      expect(order).toBe("Order 1; the last one of this session: 1.");

      // Two tabs are two forms: the second one is refused while the first one is at work.
      const tabs = [await browser.token(), await browser.token()];
      const inTurn = () => browser.post("/orders", { submission: tabs.pop() as string });
      const both = await clickTwice(inTurn, bank);
      expect(both.map(({ status }) => status).sort()).toEqual([303, 409]);
      const refused = both.find(({ status }) => status === 409);
      expect(refused?.headers.get("content-type")).toMatch(/^text\/html/);
      expect(bank.charges).toBe(2);
    });
  });

  test("a form without a session is not submitted", async () => {
    const command = { program: process.execPath, args: ["shop.js"], folder: project.folder };
    await withShop(command, async ({ url }, bank) => {
      const browser = new Browser(url);
      const submission = await browser.token();
      expect((await browser.post("/orders", { submission })).status).toBe(401);
      expect(bank.charges).toBe(0);
    });
  });

  function redirect({ status, headers }: Response): string {
    return `${status} ${headers.get("location")}`;
  }

  /** Keeps its cookie, prefers HTML and follows no redirect. */
  class Browser {
    readonly #url: string;
    readonly #headers = new Headers({ accept: "text/html" });

    constructor(url: string) {
      this.#url = url;
    }

    get(path: string): Promise<Response> {
      return this.#fetch(path, {});
    }

    post(path: string, fields: Record<string, string>): Promise<Response> {
      return this.#fetch(path, { method: "POST", body: new URLSearchParams(fields) });
    }

    /** Opens the checkout, and reads the token of its form. */
    async token(): Promise<string> {
      const page = await (await this.get("/checkout")).text();
      return /name="submission" value="([^"]+)"/.exec(page)?.[1] as string;
    }

    async #fetch(path: string, init: RequestInit): Promise<Response> {
      const headers = this.#headers;
      const answer = await fetch(this.#url + path, { ...init, headers, redirect: "manual" });
      const [cookie] = answer.headers.getSetCookie();
      if (cookie !== undefined) headers.set("cookie", cookie.split(";")[0] as string);
      return answer;
    }
  }
});

describe("ioredis-mock", () => {
  let project: Project;
  beforeAll(async () => {
    const packages = {
      ...ownVersions("express"),
      ioredis: "5.11.1", // what the mock is made for
      "ioredis-mock": "8.13.1",
    };
    project = await consumers.installRecipe(["ioredis-mock"], { type: "module", packages });
  });

  test("a unit test has ioredis-mock for its carts and a MemoryStore for its lock", async () => {
    const printed = await project.node(["--test", "--test-reporter=tap", "app.test.js"]);
    expect(printed).toMatch(/^# pass 2$/m);
    expect(printed).toMatch(/^# fail 0$/m);
  });

  test("the same shop places one order of two clicks on a real Redis", () => {
    const command = { program: process.execPath, args: ["server.js"], folder: project.folder };
    return withShop(command, expectOneOrder);
  });
});

/** NestJS 11 on Express, and 12 on Express and Fastify, with the example that the package has. */
const nests = [
  { name: "NestJS 11", version: "11.2.10", fastify: "11.2.8", platform: "express" },
  { name: "NestJS 12", version: "12.5.1", fastify: "12.5.0", platform: "express" },
  { name: "NestJS 12 on Fastify", version: "12.5.1", fastify: "12.5.0", platform: "fastify" },
] as const;

describe.each(nests)("$name", ({ fastify, platform, version }) => {
  let command: Command;
  beforeAll(async () => {
    const of = ["common", "core", "platform-express"];
    const packages = {
      ...Object.fromEntries(of.map((each) => [`@nestjs/${each}`, version])),
      ...{ "@nestjs/platform-fastify": fastify, "reflect-metadata": "0.2.2", rxjs: "7.8.2" },
      ...ownVersions("ioredis", "typescript", "@types/node", "@types/express"),
      ...ownVersions("express-session", "@types/express-session"),
    };
    const folder = `nest-${version}-${platform}`;
    const project = await consumers.installRecipe(["nest"], { type: "module", packages }, folder);
    const packed = join(project.folder, "node_modules/submit-lock/examples/nest/submit.ts");
    await copyFile(packed, join(project.folder, "submit.ts"));
    expect(await project.bin("tsc", [])).toEqual({ code: 0, stdout: "", stderr: "" });
    const args = ["out/shop.js"];
    const env = { PLATFORM: platform };
    command = { program: process.execPath, args, folder: project.folder, env };
  });

  describe.skipIf(platform === "fastify")("with the guard as its middleware", () => {
    test("places one order of two clicks, and repeats its answer", () =>
      withShop(command, expectOneOrder));

    test("keeps the lock after the client has left, until the handler is done", () =>
      withShop(command, expectHeldUntilDone));

    test("releases the lock of a handler that throws", async () => {
      await withShop(command, async (shop) => {
        const user = freshUser();
        expect((await shop.order(user, { path: "/orders/broken" })).status).toBe(500);
        await untilFree(shop, user);
      });
    });
  });

  describe("with once in an interceptor", () => {
    const path = "/returns";
    const invoice = "an invoice";

    test("runs the controller for one of three clicks, and repeats its value", async () => {
      await withShop(command, async (shop, bank) => {
        const user = freshUser();
        expect((await shop.order(user, { path })).status).toBe(400);
        expect((await shop.order("", { path, key: "one-return" })).status).toBe(401);
        const click = () => shop.order(user, { path, key: "one-return" });
        const replies = [...(await Promise.all([click(), click()])), await click()];
        expect(replies.map(({ status }) => status)).toEqual([201, 201, 201]);
        expect(replies.at(-1)?.headers.get("idempotent-replayed")).toBe("true");
        expect(replies.map(({ headers }) => headers.get("location"))).toEqual(
          Array(3).fill("/returns/7"),
        );
        const texts = await Promise.all(replies.map((reply) => reply.text()));
        expect(new Set(texts).size).toBe(1);
        expect(bank.charges).toBe(1);
      });
    });

    test.each([
      ["a stream", "/labels", "a label"],
      // Nest makes JSON of bytes on Express.
      ["bytes", "/bytes", platform === "fastify" ? invoice : JSON.stringify(Buffer.from(invoice))],
      ["an answer by hand", "/by-hand", '{"placed":"by hand"}'],
    ])("sends %s, which a repeat cannot be given", async (_what, unkept, text) => {
      await withShop(command, async (shop, bank) => {
        const user = freshUser();
        const click = () => shop.order(user, { path: unkept, key: "one" });
        const [first, second] = [await click(), await click()];
        expect([first.status, await first.text(), second.status]).toEqual([201, text, 409]);
        expect(bank.charges).toBe(1);
      });
    });

    test.skipIf(platform === "fastify")("a repeat that waited leaves the cart empty", async () => {
      await withShop(command, async (shop, bank) => {
        const user = freshUser();
        const filled = await shop.order(user, { path: "/session/cart" });
        const cookie = filled.headers.get("set-cookie")?.split(";", 1)[0] ?? "";
        const click = () => shop.order(user, { path: "/session/orders", key: "one", cookie });
        const waiting = async () => (await shop.order(user, { path: "/session/waiting" })).text();
        bank.hold();
        const first = click();
        await until(() => bank.charges === 1, { what: "the first order" });
        const second = click();
        const waits = async () => (await waiting()) === "1";
        await until(waits, { what: "the second click to wait", everyMs: 50 });
        bank.release();
        const [one, other] = [await first, await second];
        expect(other.headers.get("idempotent-replayed")).toBe("true");
        expect(await one.json()).toEqual({ ordered: ["apples"] });
        expect(await other.json()).toEqual({ ordered: ["apples"] });
        const cart = await shop.order(user, { path: "/session/cart", cookie });
        expect(await cart.json()).toEqual([]);
      });
    });

    test("compares the query, too", async () => {
      await withShop(command, async (shop, bank) => {
        const user = freshUser();
        const click = (coupon: string) =>
          shop.order(user, { path: `${path}?coupon=${coupon}`, key: "one" });
        const statuses = [(await click("A")).status, (await click("B")).status];
        expect([statuses, bank.charges]).toEqual([[201, 422], 1]);
      });
    });

    test("a SIGTERM closes a silent connection after ten seconds", async () => {
      await withShop(command, async (shop) => {
        const socket = connect(Number(new URL(shop.url).port), "127.0.0.1");
        socket.on("error", () => {});
        await once(socket, "connect");
        socket.write("POST /returns HTTP/1.1\r\n");
        await shop.order(freshUser(), { path, key: "one" });
        shop.terminate();
        await shop.ended;
      });
    });

    test("answers an error as the guards do, and logs none", async () => {
      await withShop(command, async (shop, bank) => {
        const user = freshUser();
        bank.hold();
        const first = shop.order(user, { path, key: "k-1" });
        await until(() => bank.charges === 1, { what: "the first return" });
        const second = await shop.order(user, { path, key: "k-2" });
        expect(second.status).toBe(409);
        expect(second.headers.get("retry-after")).toBe("1");
        expect(await second.json()).toMatchObject({ code: "submit_contended" });
        bank.release();
        expect((await first).status).toBe(201);
        expect(shop.output()).not.toContain("ERROR");
      });
    });

    test("a SIGTERM lets an order end", () =>
      withShop(command, (shop, bank) => expectEndedByOrder(shop, bank, path)));
  });

  describe("with the lock in an interceptor", () => {
    test("places one order of two clicks; a late click is another order", async () => {
      await withShop(command, async (shop, bank) => {
        const path = "/refunds";
        expect((await shop.order("", { path })).status).toBe(401);
        const user = freshUser();
        const key = "one-refund";
        const both = await clickTwice(() => shop.order(user, { path, key }), bank);
        expect(both.map(({ status }) => status).sort()).toEqual([201, 409]);
        expect(bank.charges).toBe(1);

        const late = async () => (await shop.order(user, { path, key })).status === 201;
        await until(late, { what: "the late click", everyMs: 50 });
        expect(bank.charges).toBe(2);
      });
    });
  });
});

describe("Next.js", () => {
  const NEXT = { next: "16.4.6", react: "19.3.1", "react-dom": "19.3.1" };
  const guide = page("docs/guide/any-function.md");

  let command: Command;
  beforeAll(async () => {
    vi.stubEnv("NEXT_TELEMETRY_DISABLED", "1");
    const manifest = { type: "module", packages: { ...NEXT, ...ownVersions("ioredis") } } as const;
    const project = await consumers.installRecipe(["next", "fetch"], manifest);
    await writeGuide(project);
    const next = "node_modules/next/dist/bin/next";
    await project.node([next, "build"]);
    const args = [next, "start", "--hostname", "127.0.0.1", "--port", "$PORT"];
    command = { program: process.execPath, args, folder: project.folder };
  });
  afterAll(() => vi.unstubAllEnvs());

  /** The modules of the guide, as it has them. */
  async function writeGuide({ folder }: Project): Promise<void> {
    const action = `"use server";\n${guide.blockUnder("A Next server action")}`;
    await writeFile(join(folder, "lock.ts"), guide.blockUnder("One lock"));
    await writeFile(join(folder, "checkout.ts"), guide.blockUnder("The call"));
    await writeFile(join(folder, "action.ts"), action);
  }

  test("a route handler places one order of two clicks, and repeats its answer", () =>
    withShop(command, expectOneOrder));

  test("a route handler keeps the lock after the client has left, until it is done", () =>
    withShop(command, expectHeldUntilDone));

  test("the stream of a route handler is over when its reader leaves", () =>
    withShop(command, expectHeldWhileRead));

  test("an order whose lease is lost is a 500 of Next.js", async () => {
    await withShop(command, async (shop, bank) => {
      const user = freshUser();
      bank.hold();
      const order = shop.order(user);
      await until(() => bank.charges === 1, { what: "the charge" });
      expect(await sendCommand(sharedRedisPort(), "DEL", `lock:submit:${user}`)).toBe(1);
      expect((await order).status).toBe(500);
    });
  });

  test("after() is given the release, and the record of an answer", async () => {
    await withShop(command, async (shop) => {
      const ended = async () => {
        const answer = await fetch(`${shop.url}/orders`);
        return ((await answer.json()) as { endedLeases: number }).endedLeases;
      };
      expect(await ended()).toBe(0);
      const user = freshUser();
      expect((await shop.order(user)).status).toBe(201);
      await until(async () => (await ended()) === 1, { what: "the release" });
      await untilFree(shop, user);
      const before = await ended();
      expect((await shop.order(freshUser(), { key: "one" })).status).toBe(201);
      await until(async () => (await ended()) > before, { what: "the record" });
    });
  });

  test("the guide's server action places one order of two clicks and a late one", async () => {
    await withShop(command, async (shop, bank) => {
      const user = freshUser();
      const form = await openForm(shop, user);
      bank.hold();
      const clicks = [form.submit(), form.submit()];
      await until(() => bank.charges > 0, { what: "the charge" });
      bank.release();
      expect(await Promise.all(clicks)).toEqual(["Order 1 is placed.", "Order 1 is placed."]);
      expect(await form.submit()).toBe("Order 1 is placed.");
      expect(bank.charges).toBe(1);

      // Another page is another submission.
      const [one, other] = [await openForm(shop, user), await openForm(shop, user)];
      bank.hold();
      const first = one.submit();
      await until(() => bank.charges === 2, { what: "the next charge" });
      expect(await other.submit()).toBe("You already have an order in progress.");
      bank.release();
      expect(await first).toBe("Order 2 is placed.");
    });
  });

  /** The page with the form, as a browser without JavaScript has it. */
  async function openForm(shop: ShopProcess, user: string) {
    const headers = { cookie: `user=${user}`, origin: shop.url };
    const html = await (await fetch(shop.url, { headers })).text();
    const unescaped = (text = "") => text.replaceAll("&quot;", '"').replaceAll("&amp;", "&");
    const fields = [
      ...html.matchAll(/<input type="hidden" name="([^"]+)"(?: value="([^"]*)")?\/>/g),
    ];
    expect(fields.length).toBeGreaterThan(3);
    const submit = async (): Promise<string | undefined> => {
      const body = new FormData();
      for (const [, name, value] of fields) body.append(unescaped(name), unescaped(value));
      const answer = await fetch(shop.url, { method: "POST", headers, body });
      return /<p role="status">(.*?)<\/p>/.exec(await answer.text())?.[1];
    };
    return { submit };
  }
});

describe("runtimes", () => {
  const allowed = ["--allow-net", "--allow-env", "--allow-read", "--allow-sys"];
  const served = ["serve", ...allowed, "--host", "127.0.0.1", "--port", "$PORT"];

  // The programs themselves: killed, what npm links for Deno would leave it running.
  const runtimes = [
    {
      name: "node",
      version: process.version,
      program: process.execPath,
      shops: [{ shop: "handlers of fetch", args: ["node.js"] }],
    },
    {
      name: "bun",
      ...BUN,
      shops: [
        { shop: "Express", args: ["shop.js"] },
        { shop: "Hono", args: ["run", "hono.js"] },
        { shop: "handlers of fetch", args: ["run", "plain.js"] },
      ],
    },
    {
      name: "deno",
      version: "2.9.6",
      program: `node_modules/deno/deno${process.platform === "win32" ? ".exe" : ""}`,
      shops: [
        { shop: "Express", args: ["run", ...allowed, "shop.js"] },
        { shop: "Hono", args: [...served, "hono.js"] },
        { shop: "handlers of fetch", args: [...served, "plain.js"] },
      ],
    },
  ] as const;

  const shops = runtimes.flatMap(({ shops, ...runtime }) =>
    shops.map((shop) => ({ ...runtime, ...shop })),
  );
  const projects = new Map<string, Promise<Project>>();

  /** A project with the shops and this runtime, which is installed once. */
  function projectOf({ name, version, program }: (typeof shops)[number]): Promise<Project> {
    const install = async () => {
      const packages = {
        ...ownVersions("express", "hono", "ioredis"),
        "@whatwg-node/node-fetch": "~0.9.0",
        ...(name === "node" ? {} : { [name]: version }),
      };
      // Their install scripts put the program of this platform in its place.
      const manifest = { type: "module", packages, scripts: true } as const;
      const project = await consumers.installRecipe(["shop", "fetch"], manifest, name);
      const asked = await promisify(execFile)(resolve(project.folder, program), ["--version"]);
      // No Node under another name.
      expect(asked.stdout).toContain(version);
      return project;
    };
    const installed = projects.get(name) ?? install();
    projects.set(name, installed);
    return installed;
  }

  describe.each(shops)("on $name, $shop:", (row) => {
    let command: Command;
    beforeAll(async () => {
      const { folder } = await projectOf(row);
      command = { program: resolve(folder, row.program), args: row.args, folder };
    });

    test("a shop places one order of two clicks", () => withShop(command, expectOneOrder));

    test("a shop keeps the lock after the client has left, until the handler is done", () =>
      withShop(command, expectHeldUntilDone));

    test.skipIf(row.shop === "Express")("a stream is over when its reader leaves", () =>
      withShop(command, expectHeldWhileRead),
    );

    const others = "proxied library cloned cached redirected read-before streamed".split(" ");
    // Elsewhere a response of fetch keeps the coding of a body that is decoded, without a guard, too.
    if (row.name === "deno") others.push("coded");
    test.skipIf(row.shop === "Express")("a Response that others made is answered as it is", () =>
      withShop(command, async (shop) => {
        for (const what of others) {
          const [first, again] = await orderAgain(shop, what);
          const isRedirect = what === "redirected";
          expect([first.status, await first.text()], what).toEqual(
            isRedirect ? [303, ""] : [201, "placed"],
          );
          expect(first.headers.get("location"), what).toMatch(/\/orders\/7$/);
          expect(first.headers.getSetCookie(), what).toEqual(isRedirect ? [] : ["a=1", "b=2"]);
          expect([again.status, await again.text()], what).toEqual([
            first.status,
            isRedirect ? "" : "placed",
          ]);
        }
      }),
    );

    test.skipIf(row.shop === "Express")("a text that names no type stays a text", () =>
      withShop(command, async (shop) => {
        for (const [what, text] of Object.entries({
          untyped: "placed",
          "untyped-umlaut": "plåced",
        })) {
          for (const answer of await orderAgain(shop, what)) {
            expect(answer.headers.get("content-type"), what).toMatch(/^text\/plain/);
            expect([answer.status, await answer.text()]).toEqual([201, text]);
          }
        }
        const bytes = await shop.order(freshUser(), { path: "/others/untyped-bytes" });
        expect(bytes.headers.get("content-type") ?? "").not.toMatch(/text/);
      }),
    );

    /** The answer of an order, and its replay as soon as it is kept. */
    async function orderAgain(shop: ShopProcess, what: string): Promise<[Response, Response]> {
      const [user, key] = [freshUser(), randomUUID()];
      const order = () => shop.order(user, { key, path: `/others/${what}` });
      const first = await order();
      let again = await order();
      while (again.status === 409) again = await order();
      expect(again.headers.get("idempotent-replayed"), what).toBe("true");
      return [first, again];
    }

    test.skipIf(row.shop === "Express")("a SIGTERM lets an order end", () =>
      withShop(command, expectEndedByOrder),
    );

    test("an order goes through whose reply from Redis is lost, and leaves no lock", () =>
      behindProxy(async (proxy, shop, bank) => {
        const user = freshUser();
        const lost = proxy.loseReplyOnce(isAcquire);
        expect((await shop.order(user)).status).toBe(201);
        await lost;
        expect(bank.charges).toBe(1);
        await untilFree(shop, user);
      }));

    test("a Redis that is away is a 503, and an order when it is back", () =>
      behindProxy(async (proxy, shop, bank) => {
        await proxy.refuse(true);
        proxy.resetAll();
        const user = freshUser();
        const refused = await shop.order(user);
        expect(refused.status).toBe(503);
        expect(await refused.json()).toMatchObject({ code: "submit_unavailable" });
        expect(bank.charges).toBe(0);
        await proxy.refuse(false);
        const placed = async () => (await shop.order(user)).status === 201;
        await until(placed, { what: "an order", everyMs: 50 });
      }));

    async function behindProxy(
      play: (proxy: RedisProxy, shop: ShopProcess, bank: Bank) => Promise<void>,
    ): Promise<void> {
      const proxy = await startProxy(sharedRedisPort());
      try {
        await withShop(command, (shop, bank) => play(proxy, shop, bank), proxy.port);
      } finally {
        await proxy.stop();
      }
    }
  });
});

describe("submit-lock/browser", () => {
  const apps = [
    {
      name: "Bun",
      program: BUN.program,
      file: "runtime.js",
      manifest: { type: "module", packages: { bun: BUN.version }, scripts: true },
    },
    {
      name: "the fetch of React Native",
      program: process.execPath,
      file: "react-native.js",
      manifest: {
        type: "module",
        packages: {
          "abort-controller": "3.0.0",
          "whatwg-fetch": "3.6.20",
          jsdom: "26.1.0",
          ...ownVersions("esbuild"),
        },
      },
    },
  ] as const;

  describe.each(apps)("on $name", ({ name, program, file, manifest }) => {
    let folder: string;
    let shop: Shop;
    beforeAll(async () => {
      ({ folder } = await consumers.installRecipe(["client"], manifest, name));
      shop = await Shop.open(sharedRedisPort());
    });
    afterAll(() => shop?.close());

    test.each([
      ["an answer that is lost", "unanswered", "network"],
      ["a 502", "502", "unavailable"],
    ] as const)("%s is followed by that of the one order", async (_name, fate, reason) => {
      const usual = { beforeMs: 50, afterMs: 0, declines: 0, waitMs: 0, leaves: false };
      await shop.begin({ framework: "fetch", ...usual });
      shop.received = 0;
      shop.strike(fate, 1);
      const cart = freshUser();
      const args = [file, shop.url, cart];
      const ended = await promisify(execFile)(resolve(folder, program), args, { cwd: folder });
      const orders = shop.ordersOf(cart);
      expect(orders).toHaveLength(1);
      expect(JSON.parse(ended.stdout)).toEqual({
        status: 201,
        number: orders[0],
        reasons: [reason],
      });
      expect(shop.received).toBe(2);
    });
  });
});
