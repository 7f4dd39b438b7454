/** A call that has not settled by then never will, as far as its caller is concerned. */
export const callBoundMs = 15_000;

/** What became of a promise within a time. */
export type Settled<Value> =
  | { readonly kind: "fulfilled"; readonly value: Value }
  | { readonly kind: "rejected"; readonly error: unknown }
  | { readonly kind: "pending" };

/** A promise that may never settle, and must not keep the lab waiting. Never rejects. */
export async function settled<Value>(
  promise: Promise<Value>,
  boundMs: number,
): Promise<Settled<Value>> {
  let timer: NodeJS.Timeout | undefined;
  const timeUp = new Promise<Settled<Value>>((resolve) => {
    timer = setTimeout(resolve, boundMs, { kind: "pending" });
  });
  const outcome = promise.then(
    (value): Settled<Value> => ({ kind: "fulfilled", value }),
    (error: unknown): Settled<Value> => ({ kind: "rejected", error }),
  );
  const first = await Promise.race([outcome, timeUp]);
  clearTimeout(timer);
  return first;
}
