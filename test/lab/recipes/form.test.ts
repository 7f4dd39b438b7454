import { afterAll, beforeAll, expect, test, vi } from "vitest";
import { Consumers, ownVersions, type Project } from "../../package/consumer-project.ts";
import { freshUser } from "../../support/ids.ts";
import { until } from "../../support/until.ts";
import { clickTwice, withShop } from "./recipe.ts";

vi.setConfig({ testTimeout: 180_000, hookTimeout: 180_000 });

let consumers: Consumers;
let project: Project;
beforeAll(async () => {
  consumers = await Consumers.pack();
  const packages = ownVersions("express", "express-session", "ioredis");
  project = await consumers.installRecipe(["form"], { type: "module", packages });
});
afterAll(() => consumers?.remove());

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
    for (const answer of await Promise.all(clicks)) expect(redirect(answer)).toBe("303 /orders/1");

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
