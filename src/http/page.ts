import type { ProblemCode } from "./refusals.ts";

/** The types of an answer, the preferred one first for a client that accepts any. */
export const offeredTypes = ["application/problem+json", "json", "html"] as const;

/** The page of a problem: the one of its code, or one for a case of a code. */
type PageName = ProblemCode | "submission_ended";

/** The titles of the pages that need another one than "Your order was not placed". */
const titles: Readonly<Partial<Record<PageName, string>>> = {
  submit_contended: "You already have an order in progress",
  idempotency_in_flight: "Your order is being processed",
  submission_ended: "Your first click was answered",
  idempotency_answer_unavailable: "Your order was submitted before",
};

const advices: Readonly<Record<PageName, string>> = {
  submit_anonymous: "You are not signed in. Sign in, and submit your order again.",
  // Also during a cooldown.
  submit_contended:
    "We are still processing your first order, or have just finished it, so we did not place this one. Look at your orders before you submit again.",
  submit_unavailable:
    "We could not make sure that it would be placed only once. Try again in a moment. If you have submitted it before, look at your orders first.",
  idempotency_key_required:
    "The page did not send what keeps an order from being placed twice. Go back, reload the page, and submit your order again.",
  idempotency_key_invalid:
    "The page sent an order number that we cannot read. Go back, reload the page, and submit your order again.",
  idempotency_id_invalid:
    "The page sent an order number that we cannot use. Go back, reload the page, and submit your order again.",
  idempotency_in_flight:
    "You have submitted it already, and we place it only once. Do not submit it again: look at your orders in a moment.",
  submission_ended:
    "We cannot show that answer again. Look at your orders: if yours is not there, submit it again.",
  idempotency_answer_unavailable:
    "We did not place it a second time, and cannot show the first answer again. Look at your orders.",
  idempotency_conflict:
    "The page was used for another order before. Look at your orders; to place this one as well, start again from your cart.",
};

/**
 * The page of a problem, for a person who has submitted an HTML form, and would see a line of JSON in
 * the middle of the checkout. It has no link, because only the shop knows its pages, and no style or
 * script, because a content security policy could forbid them.
 */
export function pageOf(code: ProblemCode, name: PageName): string {
  const title = titles[name] ?? "Your order was not placed";
  return `<!doctype html>
<html lang="en">
<head>
<meta charset="utf-8">
<meta name="viewport" content="width=device-width, initial-scale=1">
<title>${title}</title>
</head>
<body>
<main>
<h1>${title}</h1>
<p>${advices[name]}</p>
<p><small>${code}</small></p>
</main>
</body>
</html>
`;
}
