import type { ServerResponse } from "node:http";
import { cartOf, refillCart, total } from "../shop/carts.ts";
import type { Database } from "../shop/database.ts";
import type { Part } from "./front.ts";

/** A customer of the forms; a shop would have signed somebody in. */
const user = "ada";
const paths: Record<string, string> = {
  once: "/orders",
  lock: "/lock/orders",
  nothing: "/nothing/orders",
};

/** The checkout as an HTML form, for browsers without JavaScript. */
export function formPages({ db }: { readonly db: Database }): Part {
  return async (req, res, { pathname, searchParams }) => {
    if (req.method !== "GET") return false;
    if (pathname === "/form") {
      const { protection, fresh } = Object.fromEntries(searchParams);
      if (fresh !== undefined) await refillCart(db, user);
      send(res, await form(db, paths[protection ?? ""] ?? "/orders"));
      return true;
    }
    const [, number] = /^\/orders\/(\d{1,9})$/.exec(pathname) ?? [];
    if (number === undefined) return false;
    send(res, await placed(db, Number(number)));
    return true;
  };
}

async function form(db: Database, action: string): Promise<string> {
  const cart = await cartOf(db, user);
  if (cart.items.length === 0) {
    return `<h1>Your cart is empty</h1><p>It has been ordered.
      <a href="/form?fresh">Fill it again</a></p>`;
  }
  const items = cart.items.map(({ name, cents }) => `<li>${name}: ${euros(cents)}</li>`).join("");
  return `<h1>Your cart</h1><ul>${items}</ul><p>Total: ${euros(total(cart))}</p>
    <form method="post" action="${action}">
      <input type="hidden" name="cart" value="${cart.id}">
      <input type="hidden" name="version" value="${cart.version}">
      <button class="main">Place order</button>
    </form>`;
}

async function placed(db: Database, number: number): Promise<string> {
  const [order] = await db.query<{ cents: number }>(
    "SELECT cents FROM demo_shop.orders WHERE number = $1 AND user_id = $2",
    [number, user],
  );
  if (order === undefined) return "<h1>There is no such order</h1>";
  return `<h1>Order ${number} is placed</h1><p>${euros(order.cents)} were charged.
    <a href="/form?fresh">Order again</a></p>`;
}

function euros(cents: number): string {
  return (cents / 100).toLocaleString("en", { style: "currency", currency: "EUR" });
}

function send(res: ServerResponse, body: string): void {
  res.writeHead(200, {
    "Content-Type": "text/html; charset=utf-8",
    // The back button shows the page as it was, with the cart that it showed.
    "Cache-Control": "private, no-cache",
    "Set-Cookie": `session=token-of-${user}; Path=/; HttpOnly; SameSite=Lax`,
  });
  res.end(`<!doctype html><html lang="en"><meta charset="utf-8">
    <meta name="viewport" content="width=device-width, initial-scale=1">
    <title>Checkout</title><link rel="icon" href="data:,"><link rel="stylesheet" href="/page/page.css">
    <main class="plain"><section>${body}<p class="soft">This page works without JavaScript.
    <a href="/">The page with a time axis</a></p></section></main></html>`);
}
