import type { Problem, ProblemCode } from "./problem.ts";

/** What a client may be answered, the best first where it does not care. */
export const offeredTypes = ["application/problem+json", "json", "html"] as const;

/** Which page tells a person the same: that of the code, or one for a case of a code. */
export type PageName = ProblemCode | "submission_ended";

interface PageText {
  readonly title: string;
  readonly advice: string;
}

/** What a person is to know and to do, by the page of the problem. */
const texts: Readonly<Record<PageName, PageText>> = {
  submit_anonymous: {
    title: "Your order was not placed",
    advice: "You are not signed in. Sign in, and submit your order again.",
  },
  // Also during a cooldown.
  submit_contended: {
    title: "Another order of yours came first",
    advice:
      "It is being processed, or was placed a moment ago, and this one was not placed beside it. Look at your orders before you submit again.",
  },
  submit_unavailable: {
    title: "Your order was not placed",
    advice:
      "We could not make sure that it would be placed only once. Try again in a moment. If you have submitted it before, look at your orders first.",
  },
  idempotency_key_required: {
    title: "Your order was not placed",
    advice:
      "The page that you came from did not send what keeps an order from being placed twice. Reload that page, and submit your order again.",
  },
  idempotency_key_invalid: {
    title: "Your order was not placed",
    advice:
      "The page that you came from sent something unreadable where it names the order. Reload that page, and submit your order again.",
  },
  idempotency_id_invalid: {
    title: "Your order was not placed",
    advice:
      "The page that you came from did not name the order in a way that we understand. Reload that page, and submit your order again.",
  },
  idempotency_in_flight: {
    title: "Your order is being processed",
    advice:
      "You have submitted it already, and it is placed only once. Do not submit it again: look at your orders in a moment.",
  },
  submission_ended: {
    title: "Your first click was answered",
    advice:
      "Its answer cannot be shown again. Look at your orders: if yours is not there, submit it again.",
  },
  idempotency_answer_unavailable: {
    title: "Your order was submitted before",
    advice:
      "It is not placed a second time. What was answered then cannot be shown again: look at your orders.",
  },
  idempotency_conflict: {
    title: "Your order was not placed",
    advice:
      "The page that you came from was used for another order before. Look at your orders; to place this one as well, begin again at your cart.",
  },
};

/**
 * The same answer for somebody who has submitted an HTML form, and would see a line of JSON in the
 * middle of the checkout. Without a link, because only the shop knows its pages, and without a style
 * or a script that a content security policy could forbid.
 */
export function asPage({ code, headers, status }: Problem, page: PageName = code): Problem {
  const { advice, title } = texts[page];
  return {
    status,
    code,
    headers: { ...headers, "Content-Type": "text/html; charset=utf-8" },
    body: `<!doctype html>
<html lang="en">
<head>
<meta charset="utf-8">
<meta name="viewport" content="width=device-width, initial-scale=1">
<title>${title}</title>
</head>
<body>
<main>
<h1>${title}</h1>
<p>${advice}</p>
<p><small>${code}</small></p>
</main>
</body>
</html>
`,
  };
}
