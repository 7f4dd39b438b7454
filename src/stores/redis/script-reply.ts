/** A script's reply: the numbers that it begins with, and a code, a record or an error for each entry. */
export interface ScriptReply {
  readonly head: readonly number[];
  readonly codes: readonly (number | string | Error)[];
}

/** `undefined` for anything that none of the scripts can have said. */
export function scriptReply(
  value: unknown,
  headLength: number,
  entries: number,
): ScriptReply | undefined {
  if (!Array.isArray(value) || value.length !== headLength + entries) return undefined;
  // ioredis with `stringNumbers` turns numbers into strings.
  const all = typeof value[0] === "string" ? value.map(asNumber) : value;
  const head = all.slice(0, headLength);
  const codes = all.slice(headLength);
  return head.every(Number.isSafeInteger) && codes.every(isCode) ? { head, codes } : undefined;
}

/** A record is longer than any number. */
function asNumber(value: unknown): unknown {
  return typeof value === "string" && value.length < 20 ? Number(value) : value;
}

function isCode(code: unknown): code is number | string | Error {
  return Number.isSafeInteger(code) || typeof code === "string" || code instanceof Error;
}
