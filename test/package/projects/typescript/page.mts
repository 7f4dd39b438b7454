import {
  type FormProtection,
  forget,
  idOf,
  protectForm,
  SubmitUnansweredError,
  submitOnce,
  type Waiting,
} from "submit-lock/browser";

const onWaiting = ({ delayMs, id, reason, tries }: Waiting) =>
  console.log(id, reason, tries.toFixed(), delayMs.toFixed());
export async function placeOrder(signal: AbortSignal): Promise<boolean | string> {
  const once = { name: "cart:17", id: idOf("cart:17"), timeoutMs: 30_000, onWaiting };
  try {
    const answer: Response = await submitOnce("/orders", { method: "POST", signal, once });
    return answer.ok;
  } catch (error) {
    return error instanceof SubmitUnansweredError && error.id;
  }
}

export const takeOff: FormProtection[] = [...document.forms].map((form) => protectForm(form));
for (const { renew } of takeOff) renew();
forget("cart:17");
// @ts-expect-error a button is not a form
protectForm(document.createElement("button"));
// @ts-expect-error a name is text
export const refused: Promise<Response> = submitOnce("/orders", { once: { name: 17 } });
