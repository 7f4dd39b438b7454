import type { ServerResponse } from "node:http";
import type { Part } from "./front.ts";
import { cartOf, refillCart, total } from "./shop/carts.ts";
import type { Database } from "./shop/database.ts";
import { shopPage } from "./shop/pages.ts";

/** A customer of the forms; a shop would have signed somebody in. */
const user = "ada";
const protections = [
  { name: "nothing", path: "/nothing/orders", text: "nothing" },
  { name: "lock", path: "/lock/orders", text: "the lock" },
  { name: "once", path: "/orders", text: "the lock and “once”" },
] as const;

/** The checkout as an HTML form, for browsers without JavaScript. */
export function formPages({ db }: { readonly db: Database }): Part {
  return async (req, res, { pathname, searchParams }) => {
    if (req.method !== "GET") return false;
    if (pathname === "/form") {
      const { protection, fresh } = Object.fromEntries(searchParams);
      if (fresh !== undefined) await refillCart(db, user);
      send(res, await form(db, protection));
      return true;
    }
    if (pathname === "/orders") {
      send(res, await orders(db));
      return true;
    }
    const [, number] = /^\/orders\/(\d{1,9})$/.exec(pathname) ?? [];
    if (number === undefined) return false;
    send(res, await placed(db, Number(number)));
    return true;
  };
}

/** The server has put an id into the form: the cart. */
const protects = `<script type="module">
  import { protectForm } from "/submit-lock/index.js";
  protectForm(document.forms[0], { field: "cart" });
</script>`;

/** A title, and what is below it. */
type Content = readonly [title: string, body: string];

async function form(db: Database, protection = "once"): Promise<Content> {
  const cart = await cartOf(db, user);
  if (cart.items.length === 0) {
    return [
      "Your cart is empty",
      `<p>It has been ordered. <a href="/form?fresh&amp;protection=once">Fill it again</a></p>`,
    ];
  }
  const chosen = protections.find(({ name }) => name === protection) ?? protections[2];
  const others = protections
    .filter((other) => other !== chosen)
    .map(({ name, text }) => `<a href="/form?protection=${name}">${text}</a>`);
  const items = cart.items.map(({ name, cents }) => `<li>${name}: ${euros(cents)}</li>`).join("");
  return [
    "Your cart",
    `<ul>${items}</ul><p>Total: ${euros(total(cart))}</p>
    <form method="post" action="${chosen.path}">
      <input type="hidden" name="cart" value="${cart.id}">
      <input type="hidden" name="version" value="${cart.version}">
      <button class="main">Place order</button>
    </form>
    ${chosen.name === "once" ? protects : ""}
    <p>Protected by ${chosen.text}. Click twice, then try ${others.join(" or ")}.</p>`,
  ];
}

async function placed(db: Database, number: number): Promise<Content> {
  const [order] = await db.query<{ cents: number }>(
    "SELECT cents FROM demo_shop.orders WHERE number = $1 AND user_id = $2",
    [number, user],
  );
  if (order === undefined) return ["There is no such order", again];
  return [`Order ${number} is placed`, `<p>${euros(order.cents)} were charged.</p>${again}`];
}

async function orders(db: Database): Promise<Content> {
  const all = await db.query<{ number: number; cart: number; cents: number; paid: boolean }>(
    `SELECT number, cart_id AS cart, cents, payment_id IS NOT NULL AS paid
       FROM demo_shop.orders WHERE user_id = $1 ORDER BY number DESC LIMIT 12`,
    [user],
  );
  const items = all.map(
    ({ number, cart, cents, paid }) =>
      `<li>Order ${number} of cart ${cart}: ${euros(cents)}${paid ? "" : ", in progress"}</li>`,
  );
  return [
    "Your orders",
    `${all.length === 0 ? "<p>None yet.</p>" : `<ul>${items.join("")}</ul>`}${again}`,
  ];
}

const again = `<p><a href="/orders">Your orders</a> · <a href="/form?fresh">Order again</a></p>`;

function euros(cents: number): string {
  return (cents / 100).toLocaleString("en", { style: "currency", currency: "EUR" });
}

function send(res: ServerResponse, [title, body]: Content): void {
  res.writeHead(200, {
    "Content-Type": "text/html; charset=utf-8",
    // The back button shows the page as it was, with the cart that it showed.
    "Cache-Control": "private, no-cache",
    "Set-Cookie": `session=token-of-${user}; Path=/; HttpOnly; SameSite=Lax`,
  });
  const more = `<p class="soft">This page also works without JavaScript. <a href="/">The page with a time axis</a></p>`;
  res.end(shopPage(title, body + more));
}
