const given = new Set<string>();

/**
 * A process warning that is given once per process: what it is about would repeat with every
 * request. `process.on("warning")` sees it, `--trace-warnings` shows where it came from.
 *
 * @param code stable, for `--disable-warning` and for a search.
 */
export function warnOnce(code: string, message: string): void {
  if (given.has(code)) return;
  given.add(code);
  process.emitWarning(message, { type: "SubmitLockWarning", code });
}
