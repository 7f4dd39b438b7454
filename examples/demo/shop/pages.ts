/** A page of the shop that needs no JavaScript. */
export function shopPage(title: string, body: string): string {
  return `<!doctype html>
<html lang="en">
<head>
<meta charset="utf-8">
<meta name="viewport" content="width=device-width, initial-scale=1">
<title>${title}</title>
<link rel="icon" href="data:,">
<link rel="stylesheet" href="/page/page.css">
</head>
<body>
<main class="plain">
<section>
<h1>${title}</h1>
${body}
</section>
</main>
</body>
</html>
`;
}

const otherwise = ["Something went wrong", "Look at your orders before you order again."] as const;
const signIn = [
  "You are not signed in",
  "Open your cart, which signs you in, and order again.",
] as const;

/** The words of the shop, by the code of a refusal: of a guard, or of the shop itself. */
const words: Readonly<Record<string, readonly [heading: string, advice: string]>> = {
  submit_anonymous: signIn,
  sign_in: signIn,
  submit_contended: [
    "You already have an order in progress",
    "We place one order at a time, so we did not place this one. Look at your orders in a moment.",
  ],
  idempotency_in_flight: [
    "We already have your order",
    "You have sent it before. Look at your orders in a moment: if it is not there, order again.",
  ],
  submit_unavailable: [
    "We cannot place your order now",
    "Try again in a moment. If you have tried before, look at your orders first.",
  ],
  cart_empty: ["Your cart is empty", "You have ordered it already, or taken everything out of it."],
  cart_changed: ["Your cart has changed", "Look at it once more before you order it."],
};

/** The page for a customer whose order was refused. */
export function refusalPage(code: string): string {
  const [heading, advice] = words[code] ?? otherwise;
  return shopPage(
    heading,
    `<p>${advice}</p>
<p><a href="/orders">Your orders</a> · <a href="/form">Your cart</a></p>`,
  );
}

/** The body of a guard's answer: a page of the shop for a person, the guard's own for a program. */
export function bodyOf(problem: {
  readonly code: string;
  readonly headers: Readonly<Record<string, string>>;
  readonly body: string;
}): string {
  const isPage = problem.headers["Content-Type"]?.startsWith("text/html");
  return isPage ? refusalPage(problem.code) : problem.body;
}
