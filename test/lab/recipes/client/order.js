import { submitOnce } from "submit-lock/browser";

/** Orders a cart, and resolves with the answer and the reasons to wait for it. */
export async function order(url, cart) {
  const reasons = [];
  const once = { onWaiting: ({ reason }) => reasons.push(reason) };
  const headers = { "content-type": "application/json", "x-user": cart };
  const body = JSON.stringify({ cart });
  const answer = await submitOnce(url, { method: "POST", headers, body, once });
  return { status: answer.status, ...(await answer.json()), reasons };
}
