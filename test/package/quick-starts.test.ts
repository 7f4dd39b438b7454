import { afterAll, afterEach, beforeAll, expect, test, vi } from "vitest";
import { onNodeRedis } from "../docs/in-quick-start.ts";
import { page } from "../docs/page.ts";
import { endAll, Program } from "../support/child.ts";
import { freePort } from "../support/free-port.ts";
import { freshUser } from "../support/ids.ts";
import { sharedRedisPort } from "../support/redis-server.ts";
import { Consumers, ownVersions } from "./consumer-project.ts";

// An install with an empty npm cache takes as long as the registry does.
vi.setConfig({ testTimeout: 180_000, hookTimeout: 180_000 });

/** The packages that the one command under a heading installs. */
function installedBy(file: string, heading: string): string {
  const [, packages = ""] = /^npm install (.*)$/m.exec(page(file).blockUnder(heading, "sh")) ?? [];
  return packages;
}

const readme = page("README.md").blockUnder("Quick start", "js");
const [, onExpress = ""] = /^npm install (.*)$/m.exec(page("README.md").text) ?? [];
const koa = page("docs/guide/koa.md").blockUnder("Quick start", "js");
const onKoa = installedBy("docs/guide/koa.md", "Quick start");

const starts = [
  {
    name: "Express with node-redis",
    type: "module",
    installed: installedBy("docs/guide/express.md", "With node-redis"),
    text: onNodeRedis(readme),
    client: "redis",
  },
  {
    name: "Express in ESM",
    type: "module",
    installed: onExpress,
    text: readme,
    client: "ioredis",
  },
  {
    name: "Express in CommonJS",
    type: "commonjs",
    installed: onExpress,
    text: page("docs/guide/express.md").blockUnder("In CommonJS", "cjs"),
    client: "ioredis",
  },
  { name: "Koa", type: "module", installed: onKoa, text: koa, client: "ioredis" },
  {
    name: "Koa with node-redis",
    type: "module",
    installed: onKoa.replace("ioredis", "redis"),
    text: onNodeRedis(koa),
    client: "redis",
  },
] as const;

let consumers: Consumers;

beforeAll(async () => {
  consumers = await Consumers.pack();
});
afterEach(endAll);
afterAll(() => consumers?.remove());

test.each(starts)(
  "$name, pasted into an empty project, places one order of two clicks",
  async ({ name, type, installed, text, client }) => {
    const packages = installed.split(" ").filter((each) => each !== "submit-lock");
    expect(packages.filter((each) => each.endsWith("redis"))).toEqual([client]);
    const code = { file: "shop.js", text };
    const manifest = { type, packages: ownVersions(...packages) };
    const project = await consumers.installInto(name.replaceAll(" ", "-"), code, manifest);
    const port = await freePort();
    const env = { REDIS_URL: `redis://127.0.0.1:${sharedRedisPort()}`, PORT: `${port}` };
    const shop = new Program(process.execPath, ["shop.js"], {
      cwd: project.folder,
      env: { ...process.env, ...env },
    });
    const click = async (user: string): Promise<number> => {
      const headers = { "x-user-id": user };
      return (await fetch(`http://127.0.0.1:${port}/orders`, { method: "POST", headers })).status;
    };
    const answers = () =>
      click("").then(
        (status) => status === 401,
        () => false,
      );
    await shop.until(answers, "to answer");
    const user = freshUser();
    expect((await Promise.all([click(user), click(user)])).sort()).toEqual([201, 409]);

    const shown = await project.bin("submit-lock", ["show", user], env);
    expect(shown).toMatchObject({ code: 0, stderr: "" });
  },
);
