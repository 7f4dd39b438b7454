import { OrderForm } from "./order-form.jsx";

// A new submission for each page that is rendered.
export const dynamic = "force-dynamic";

export default function Checkout() {
  return <OrderForm submission={crypto.randomUUID()} />;
}
