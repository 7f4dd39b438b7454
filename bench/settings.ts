/** How long one measurement lasts. Everything else follows from it and from the rounds. */
export const seconds = positive("BENCH_SECONDS", 0.6);

/** How often everything is measured. What is compared takes turns within a round. */
export const rounds = Math.max(1, Math.round(positive("BENCH_ROUNDS", 7)));

function positive(name: string, otherwise: number): number {
  const value = Number(process.env[name] ?? otherwise);
  if (!(value > 0)) throw new Error(`${name}: expected a number above 0`);
  return value;
}
