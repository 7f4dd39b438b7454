import type { Problem, ProblemCode } from "./refusals.ts";

/** The types of an answer, the preferred one first for a client that accepts any. */
export const offeredTypes = ["application/problem+json", "json", "html"] as const;

/** The page of a problem: the one of its code, or one for a case of a code. */
type PageName = ProblemCode | "submission_ended";

/** Title and advice of each page. */
const texts: Readonly<Record<PageName, { title: string; advice: string }>> = {
  submit_anonymous: {
    title: "Your order was not placed",
    advice: "You are not signed in. Sign in, and submit your order again.",
  },
  // Also during a cooldown.
  submit_contended: {
    title: "You already have an order in progress",
    advice:
      "We are still processing your first order, or have just finished it, so we did not place this one. Look at your orders before you submit again.",
  },
  submit_unavailable: {
    title: "Your order was not placed",
    advice:
      "We could not make sure that it would be placed only once. Try again in a moment. If you have submitted it before, look at your orders first.",
  },
  idempotency_key_required: {
    title: "Your order was not placed",
    advice:
      "The page did not send what keeps an order from being placed twice. Go back, reload the page, and submit your order again.",
  },
  idempotency_key_invalid: {
    title: "Your order was not placed",
    advice:
      "The page sent an order number that we cannot read. Go back, reload the page, and submit your order again.",
  },
  idempotency_id_invalid: {
    title: "Your order was not placed",
    advice:
      "The page sent an order number that we cannot use. Go back, reload the page, and submit your order again.",
  },
  idempotency_in_flight: {
    title: "Your order is being processed",
    advice:
      "You have submitted it already, and we place it only once. Do not submit it again: look at your orders in a moment.",
  },
  submission_ended: {
    title: "Your first click was answered",
    advice:
      "We cannot show that answer again. Look at your orders: if yours is not there, submit it again.",
  },
  idempotency_answer_unavailable: {
    title: "Your order was submitted before",
    advice:
      "We did not place it a second time, and cannot show the first answer again. Look at your orders.",
  },
  idempotency_conflict: {
    title: "Your order was not placed",
    advice:
      "The page was used for another order before. Look at your orders; to place this one as well, start again from your cart.",
  },
};

/**
 * Makes a problem a page, for a person who has submitted an HTML form, and would see a line of JSON
 * in the middle of the checkout. It has no link, because only the shop knows its pages, and no style
 * or script, because a content security policy could forbid them.
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
