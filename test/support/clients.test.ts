import { afterEach, describe, expect, test } from "vitest";
import { closeClients, ioredisClients } from "./clients.ts";
import { freshUser } from "./ids.ts";
import { sharedRedisPort } from "./redis-server.ts";
import { until } from "./until.ts";

afterEach(closeClients);

describe.each(ioredisClients)("$name", ({ connect }) => {
  test("a client writes and reads", async () => {
    const client = connect(sharedRedisPort(), { keyPrefix: "clients:" });
    const user = freshUser();
    await client.call("set", user, "1");
    expect(await client.call("get", user)).toBe("1");
    await client.call("del", user);
  });

  test("closing the clients ends their connections", async () => {
    const client = connect(sharedRedisPort());
    await client.call("ping");
    closeClients();
    await until(() => client.status === "end", { what: "the client to have ended" });
  });
});

test("the table holds both majors of ioredis", async () => {
  const majors = ioredisClients.map(
    ({ connect }) => "protocol" in connect(sharedRedisPort()).options,
  );
  expect(majors).toEqual([true, false]);
});
