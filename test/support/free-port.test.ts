import { createSocket } from "node:dgram";
import { once } from "node:events";
import { expect, test } from "vitest";
import { runChild } from "./child.ts";
import { freePort } from "./free-port.ts";

test("a port is given to one process as long as that one lives", async () => {
  const port = await freePort();
  const { stdout } = await runChild(`
    import { freePort } from ${JSON.stringify(new URL("free-port.ts", import.meta.url))};
    // The same number first: it is taken, and the next one is another.
    const { random } = Math;
    let draws = 0;
    Math.random = () => (draws++ === 0 ? ${(port - 20_000 + 0.5) / 12_000} : random());
    console.log(await freePort());
  `);
  expect(Number(stdout)).toBeGreaterThanOrEqual(20_000);
  expect(Number(stdout)).not.toBe(port);
});

test("the reservation of a process ends with it", async () => {
  const { stdout } = await runChild(`
    import { freePort } from ${JSON.stringify(new URL("free-port.ts", import.meta.url))};
    console.log(await freePort());
  `);
  const socket = createSocket("udp4").bind(Number(stdout), "127.0.0.1");
  await once(socket, "listening");
  socket.close();
});
