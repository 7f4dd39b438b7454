import { execFileSync } from "node:child_process";
import { randomUUID } from "node:crypto";
import { mkdtempSync, rmSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { fileURLToPath, pathToFileURL } from "node:url";
import { afterAll, afterEach, beforeAll, describe, expect, test } from "vitest";
import { Child } from "../../support/child.ts";
import { compiled } from "../../support/compiled.ts";
import { freshUser } from "../../support/ids.ts";
import { sharedRedisPort } from "../../support/redis-server.ts";
import { until } from "../../support/until.ts";

// "Upgrading" in docs/operations/deploying.md, walked with the version before this one.

/** The last commit of 0.2. */
const commit = "09e0cbc";
const root = fileURLToPath(new URL("../../..", import.meta.url));
const git = (...args: string[]) => execFileSync("git", args, { cwd: root, maxBuffer: 2 ** 28 });

function hasHistory(): boolean {
  try {
    git("cat-file", "-e", commit);
    return true;
  } catch {
    console.warn(`There is no commit ${commit} here: "git fetch --unshallow" brings it.`);
    return false;
  }
}

let folder: string;
let programs: Record<Version, string>;
type Version = "0.2" | "now";

async function shopOf(source: URL): Promise<string> {
  const shop = new URL("./shop.ts", import.meta.url).href;
  const code = `import { RedisStore, SubmitLock } from "${new URL("index.ts", source)}";
    import { submitGuard } from "${new URL("express/index.ts", source)}";
    import { serve } from "${shop}";
    await serve({ RedisStore, SubmitLock, submitGuard });`;
  return await compiled({ code });
}

const running = new Set<Child<{ port: number } | { order: number }>>();
async function open(version: Version) {
  const args = [`${sharedRedisPort()}`];
  const child = new Child<{ port: number } | { order: number }>(programs[version], args);
  running.add(child);
  let orders = 0;
  child.onMessage((message) => {
    if ("order" in message) orders += 1;
  });
  const { port } = (await child.next()) as { port: number };
  const post = async (path: string, body: string | FormData, given: Record<string, string>) => {
    const url = `http://127.0.0.1:${port}${path}`;
    const answer = await fetch(url, { method: "POST", headers: given, body });
    const text = await answer.text();
    return {
      status: answer.status,
      text,
      replayed: answer.headers.has("idempotent-replayed"),
      code: answer.ok ? undefined : (JSON.parse(text) as { code: string }).code,
    };
  };
  return {
    get orders() {
      return orders;
    },
    order: (user: string, key?: string, ms = 0) =>
      post("/orders", '{"cart":7}', {
        "content-type": "application/json",
        "x-user": user,
        "x-ms": `${ms}`,
        ...(key !== undefined && { "idempotency-key": key }),
      }),
    upload: (user: string, key: string) => {
      const form = new FormData();
      form.append("list", new Blob(["bread"]), "list.txt");
      return post("/uploads", form, { "x-user": user, "idempotency-key": key });
    },
    async kill() {
      running.delete(child);
      await child.kill();
    },
  };
}

describe.skipIf(!hasHistory())("P1 and P9 while a shop is upgraded", () => {
  beforeAll(async () => {
    folder = mkdtempSync(join(tmpdir(), "submit-lock-0.2-"));
    const archive = git("archive", commit, "src");
    execFileSync("tar", ["-x", "-C", folder], { input: archive });
    programs = {
      "0.2": await shopOf(pathToFileURL(`${folder}/src/`)),
      now: await shopOf(new URL("../../../src/", import.meta.url)),
    };
  });
  afterEach(async () => {
    for (const child of running) await child.kill();
    running.clear();
  });
  afterAll(() => rmSync(folder, { recursive: true, force: true }));

  describe.each([
    ["0.2", "now"],
    ["now", "0.2"],
  ] as const)("from %s to %s", (from, to) => {
    test("an answer is repeated, and an order under way keeps the next one out", async () => {
      const [first, second] = [await open(from), await open(to)];
      const user = freshUser();
      const key = randomUUID();
      const placed = await first.order(user, key);
      expect(placed).toMatchObject({ status: 201, replayed: false });
      expect(await second.order(user, key)).toMatchObject({ text: placed.text, replayed: true });

      const slow = randomUUID();
      const under = first.order(user, slow, 5_000);
      under.catch(() => {});
      await until(() => first.orders === 2, { what: "the order under way" });
      expect(await second.order(user)).toMatchObject({ status: 409, code: "submit_contended" });
      expect(await second.order(user, slow)).toMatchObject({ code: "idempotency_in_flight" });
      expect(await under).toMatchObject({ status: 201 });
      expect(second.orders).toBe(0);
    });

    test("the lock of a killed process is free after its time to live", async () => {
      const [first, second] = [await open(from), await open(to)];
      const user = freshUser();
      const lost = first.order(user, undefined, 60_000).catch(() => "lost");
      await until(() => first.orders === 1, { what: "the order under way" });
      await first.kill();
      expect(await lost).toBe("lost");
      const placed = async () => (await second.order(user)).status === 201;
      await until(placed, { what: "the next order", boundMs: 60_000, everyMs: 50 });
    });

    test("an upload is another submission: 422, as the page says", async () => {
      const [first, second] = [await open(from), await open(to)];
      const user = freshUser();
      const key = randomUUID();
      expect(await first.upload(user, key)).toMatchObject({ status: 201 });
      expect(await second.upload(user, key)).toMatchObject({ status: 422 });
      expect(second.orders).toBe(0);
    });
  });

  test("a rolling deploy gives one order for each submission", async () => {
    const shops = [await open("0.2"), await open("0.2"), await open("0.2")];
    let orders = 0;
    let submissions = 0;
    let isOver = false;
    const customer = async (index: number) => {
      const user = freshUser();
      for (let n = 0; !isOver; n += 1) {
        const key = randomUUID();
        submissions += 1;
        // Two clicks, at two processes: again until each has the answer.
        const clicks = [n + index, n + index + 1].map(async (at) => {
          for (;;) {
            const shop = shops[at % shops.length];
            const answer = await shop?.order(user, key, 20);
            if (answer?.status === 201) return answer.text;
            expect(answer?.status).toBe(409);
          }
        });
        const [one, other] = await Promise.all(clicks);
        expect(one).toBe(other);
      }
    };
    const customers = Array.from({ length: 6 }, (_, index) => customer(index));
    try {
      const gone: typeof shops = [];
      for (const index of shops.keys()) {
        const before = submissions;
        await until(() => submissions > before + 30, { what: "submissions" });
        const next = await open("now");
        gone.push(...shops.splice(index, 1, next));
      }
      const before = submissions;
      await until(() => submissions > before + 30, { what: "submissions" });
      isOver = true;
      await Promise.all(customers);
      for (const shop of [...gone, ...shops]) orders += shop.orders;
    } finally {
      isOver = true;
      await Promise.allSettled(customers);
    }
    expect(orders).toBe(submissions);
  });
});
