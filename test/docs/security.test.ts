import { existsSync, readFileSync } from "node:fs";
import { expect, test } from "vitest";
import { mainFrameworks } from "../http/frameworks.ts";
import { openOnce } from "../http/once-shop.ts";
import { ROOT } from "./page.ts";

const [, guaranteed = ""] = readFileSync(`${ROOT}/SECURITY.md`, "utf8").split(
  "## What is guaranteed",
);
const claims = guaranteed
  .slice(0, guaranteed.indexOf("\n## "))
  .split("\n")
  .filter((line) => line.startsWith("- "));

test.each(claims)("SECURITY.md names the tests of a claim: %s", (claim) => {
  const files = [...claim.matchAll(/`(test\/[\w/.-]+)`/g)].map(([, file]) => file as string);
  expect(files.length).toBeGreaterThan(0);
  for (const file of files) expect(existsSync(`${ROOT}/${file}`), file).toBe(true);
});

test.each(mainFrameworks)(
  "on $name, keys, ids and bodies of requests are in Redis as hashes only",
  async (framework) => {
    const secrets = { key: "order-48211", cart: "4111 1111 1111 1111", cookie: "sid=s3cret" };
    const once = await openOnce({ framework });
    const headers = { cookie: secrets.cookie };
    await once.submit({ key: secrets.key, body: { card: secrets.cart }, headers });
    await once.whenKept(1);
    const { redis } = once.shop;
    for (const key of await redis.keys("*")) {
      const text = key + (await redis.dump(key));
      for (const secret of Object.values(secrets)) expect(text).not.toContain(secret);
    }
  },
);
