import { writeFile } from "node:fs/promises";
import { join } from "node:path";
import { afterAll, beforeAll, expect, test, vi } from "vitest";
import { page } from "../../docs/page.ts";
import { Consumers, ownVersions, type Project } from "../../package/consumer-project.ts";
import { freshUser } from "../../support/ids.ts";
import { until } from "../../support/until.ts";
import {
  type Command,
  expectHeldUntilDone,
  expectHeldWhileRead,
  expectOneOrder,
  type ShopProcess,
  untilFree,
  withShop,
} from "./recipe.ts";

vi.setConfig({ testTimeout: 180_000, hookTimeout: 180_000 });

const NEXT = { next: "16.4.6", react: "19.3.1", "react-dom": "19.3.1" };
const guide = page("docs/guide/any-function.md");

let consumers: Consumers;
let command: Command;
beforeAll(async () => {
  vi.stubEnv("NEXT_TELEMETRY_DISABLED", "1");
  consumers = await Consumers.pack();
  const manifest = { type: "module", packages: { ...NEXT, ...ownVersions("ioredis") } } as const;
  const project = await consumers.installRecipe(["next", "fetch"], manifest);
  await writeGuide(project);
  const next = "node_modules/next/dist/bin/next";
  await project.node([next, "build"]);
  const args = [next, "start", "--hostname", "127.0.0.1", "--port", "$PORT"];
  command = { program: process.execPath, args, folder: project.folder };
});
afterAll(async () => {
  await consumers?.remove();
  vi.unstubAllEnvs();
});

/** The modules of the guide, as it has them. */
async function writeGuide({ folder }: Project): Promise<void> {
  const action = `"use server";\n${guide.blockUnder("A Next server action")}`;
  await writeFile(join(folder, "lock.ts"), guide.blockUnder("One lock"));
  await writeFile(join(folder, "checkout.ts"), guide.blockUnder("The call"));
  await writeFile(join(folder, "action.ts"), action);
}

test("a route handler places one order of two clicks, and repeats its answer", async () => {
  expect.hasAssertions();
  await withShop(command, expectOneOrder);
});

test("a route handler keeps the lock after the client has left, until it is done", async () => {
  expect.hasAssertions();
  await withShop(command, expectHeldUntilDone);
});

test("the stream of a route handler is over when its reader leaves", async () => {
  expect.hasAssertions();
  await withShop(command, expectHeldWhileRead);
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
  const fields = [...html.matchAll(/<input type="hidden" name="([^"]+)"(?: value="([^"]*)")?\/>/g)];
  expect(fields.length).toBeGreaterThan(3);
  const submit = async (): Promise<string | undefined> => {
    const body = new FormData();
    for (const [, name, value] of fields) body.append(unescaped(name), unescaped(value));
    const answer = await fetch(shop.url, { method: "POST", headers, body });
    return /<p role="status">(.*?)<\/p>/.exec(await answer.text())?.[1];
  };
  return { submit };
}
