import { once } from "node:events";
import type { AddressInfo } from "node:net";
import { openStore } from "../store.ts";
import { lockOn } from "./lock-on.ts";
import type { MakeServer } from "./serve.ts";
import { drain } from "./servers.ts";
import { lentDatabase } from "./shared-database.ts";
import { openDatabase } from "./shop/database.ts";
import { Payments } from "./shop/payments.ts";

/** One of the shop's servers, in a process that the demo started. */
export async function serveChild(makeServer: MakeServer): Promise<void> {
  // Nobody is there any more who would end it.
  process.once("disconnect", () => process.exit());
  // Ctrl+C reaches every process of a terminal, and SIGTERM may reach every one of a group; the parent
  // says when the orders are done.
  for (const signal of ["SIGINT", "SIGTERM"]) process.on(signal, () => {});

  const url = process.env["DATABASE_URL"] ?? "";
  const db = url === "" ? lentDatabase() : await openDatabase(url);
  const { store, end } = await openStore(process.env["REDIS_URL"]);
  const lock = lockOn(store, process.env["SERVER_NAME"] ?? "");
  const keyed = process.env["PAYMENTS_KEYED"] !== "no";
  const payments = new Payments(process.env["PAYMENTS_URL"] ?? "", { keyed });
  const server = makeServer({ db, payments }, lock);
  server.listen(0, "127.0.0.1");
  await once(server, "listening");
  process.on("message", async ({ close }: { close?: true }) => {
    if (!close) return;
    await drain(server);
    await lock.close();
    end();
    await db.close();
    process.exit();
  });
  process.send?.({ port: (server.address() as AddressInfo).port });
}
