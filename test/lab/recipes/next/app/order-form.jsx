"use client";
import { useActionState } from "react";
import { placeOrderAction } from "../action.ts";

export function OrderForm({ submission }) {
  const [told, action] = useActionState(placeOrderAction, "");
  return (
    <form action={action}>
      <input type="hidden" name="cart" value="cart-7" />
      <input type="hidden" name="version" value="1" />
      <input type="hidden" name="submission" value={submission} />
      <button type="submit">Place order</button>
      <p role="status">{told}</p>
    </form>
  );
}
